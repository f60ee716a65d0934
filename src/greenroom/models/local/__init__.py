"""Models that run in this process, from GGUF files."""
