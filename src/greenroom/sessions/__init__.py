"""Where conversations are kept: one contract, and a file per store."""
