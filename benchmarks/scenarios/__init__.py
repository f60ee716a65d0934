"""One module per kind of figure. A scenario takes a Bench and gives tables."""
