"""What agents are scored by."""
