"""Stores of named, versioned files of sessions and users: one contract, and a module per store."""
