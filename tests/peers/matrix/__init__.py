"""Every client, framework, registry and console that can be had, each run against a server: what it did is a row of the
table in docs/compatibility.md. `python -m tests.peers.matrix` writes it, `tests/peers/test_matrix.py` holds it."""
