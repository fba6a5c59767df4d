"""States that earlier versions left half-way."""
