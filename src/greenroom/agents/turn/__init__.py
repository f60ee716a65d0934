"""A step of an LLM agent, a file per stage."""
