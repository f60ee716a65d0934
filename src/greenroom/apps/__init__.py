"""Apps: a root agent with its policies, and loaders that find apps on disk."""
