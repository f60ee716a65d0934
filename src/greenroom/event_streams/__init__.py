"""Delivery of stored and partial events to the readers of a session."""
