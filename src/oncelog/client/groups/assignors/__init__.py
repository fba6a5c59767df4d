"""Who gets which partition, as pure functions of what the members said."""
