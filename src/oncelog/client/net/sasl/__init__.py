"""Proving who one is: mechanisms, tokens, and the exchange that carries them."""
