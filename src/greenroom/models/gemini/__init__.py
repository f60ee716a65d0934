"""Gemini, over the Gemini API or on Vertex AI.

`llm` calls the service, `contents` writes the request and `reply` reads the answer; `live` is the
Live API, `cache` the service's context cache, and `rules` says what the service accepts.
"""
