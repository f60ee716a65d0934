"""Embeddings of texts: the contract, and one module per provider."""
