"""What a leaf does whose package is not installed."""

from greenroom.errors import MissingExtra

raise MissingExtra("mcp", "mcp")
