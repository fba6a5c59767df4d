"""Versions of resume_pid."""
