"""Claims about speed, measured against ADK's own server on the same machine: `python -m benchmarks`."""
