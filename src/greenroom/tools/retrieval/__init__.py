"""Retrieval tools: over local files, or a corpus in Vertex AI."""
