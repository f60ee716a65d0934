"""Claude, on Anthropic's interface and on Vertex AI."""
