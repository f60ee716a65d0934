"""Executors of code that a model writes."""
