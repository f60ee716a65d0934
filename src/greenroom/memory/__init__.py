"""What agents remember beyond a session: one contract, and a file per store."""
