"""Models behind one contract; a provider's SDK is imported when a model of it is first made."""
