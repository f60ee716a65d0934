"""Programs for trying greenroom out."""
