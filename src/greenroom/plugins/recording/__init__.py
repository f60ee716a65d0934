"""Recording what models and tools answer in a run, and replaying it."""
