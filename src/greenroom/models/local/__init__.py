"""Models that run in this process, from GGUF files.

`files` finds and downloads them, `engine` runs one, `conversation` and `tools` turn contents and
tool calls into the text that a small model understands, and `llm` is the model.
"""
