"""Python functions as tools: what a model is told about one, and how it is called."""
