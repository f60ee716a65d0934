"""Metrics that score agents."""
