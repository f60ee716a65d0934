"""What one run carries with it."""
