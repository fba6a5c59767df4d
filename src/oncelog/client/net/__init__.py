"""Connections to brokers, and what is known of the cluster behind them."""
