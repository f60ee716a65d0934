"""A root agent with its policies, and how apps are found on disk."""
