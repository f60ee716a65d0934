"""Stands for a module whose package is not installed."""

from greenroom.errors import MissingExtra

raise MissingExtra("mcp", "mcp")
