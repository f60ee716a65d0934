"""Session stores: one contract, and a file per store."""
