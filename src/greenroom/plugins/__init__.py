"""Hooks for a whole app."""
