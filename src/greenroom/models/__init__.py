"""Models behind one contract; a provider's SDK is imported with its first model."""
