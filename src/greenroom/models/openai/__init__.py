"""Chat Completions, Responses and Realtime of OpenAI, and servers that are compatible with them."""
