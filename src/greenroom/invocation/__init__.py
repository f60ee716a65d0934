"""State and services of one run."""
