"""Where code that a model writes is run."""
