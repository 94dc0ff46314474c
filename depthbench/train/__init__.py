"""Training of one cell."""
