"""Gemini, on its own interface and on Vertex AI."""
