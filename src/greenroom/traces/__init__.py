"""Stores of the spans of past runs, for debugging."""
