"""Handlers, a file per resource."""
