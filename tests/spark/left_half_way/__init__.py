"""What earlier versions left half-way, and that this one goes on from it."""
