"""Python functions as tools: their declarations and their execution."""
