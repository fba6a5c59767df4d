"""Checks of what oncelog needs on this machine, each with the remedy where it is missing. Nothing is changed by
looking.

`machine` looks at Python, folders and limits, `packages` at the libraries, `listening` at the server's address, and
`cluster` at the brokers that a client would speak to. Each check gives `Finding`s; `cli/doctor.py` prints them.
"""
