"""What users let agents use on their behalf, and what they were asked for."""
