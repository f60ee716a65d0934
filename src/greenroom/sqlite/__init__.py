"""One SQLite file: a writer thread that commits in groups, readers beside it, and numbered migrations."""
