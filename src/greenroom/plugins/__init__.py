"""Hooks for a whole app, asked before the hooks of a single agent."""
