"""Live conversations: one connection to the model, with tool calls and transfers.

`flow` starts the tasks of a conversation, which share `conversation`: `input` sends what the client
says, `output` receives what the model says, and `tools` runs its calls. `connection` survives lost
connections; `replies`, `saved_audio` and `spans` are what becomes of the model's messages.
"""
