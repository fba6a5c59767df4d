"""A member of a group as a state machine."""
