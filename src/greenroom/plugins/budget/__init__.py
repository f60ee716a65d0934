"""Ends runs before they cost more than was allowed."""
