"""Clients that nobody here has written, each behind the same two doors: who sends numbered records, and who reads them
as a member of a group."""
