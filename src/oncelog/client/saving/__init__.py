"""A producer's identity, saved and resumed anywhere."""
