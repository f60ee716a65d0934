"""Plugins: hooks for all agents of an app, called before the callbacks of a single agent."""
