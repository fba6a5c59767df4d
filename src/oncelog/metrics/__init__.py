"""Prometheus text, and as much HTTP as a scraper needs: for the server, and for flows at work."""
