"""Tools that servers of the Model Context Protocol offer."""
