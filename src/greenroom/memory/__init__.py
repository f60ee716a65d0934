"""Memory across sessions: the contract, and one module per store."""
