"""Claude, over Anthropic's API or on Vertex AI.

`llm` calls the service and reads its stream, `messages` writes the request's messages, and `rules`
says what the service accepts.
"""
