"""Live conversations: one connection to the model, with tool calls and transfers.

`flow` starts the tasks of a conversation, which share `conversation`: `input` sends the client's messages, `output`
receives the model's, and `tools` runs its calls. `connection` reconnects after a loss; `replies`, `saved_audio` and
`spans` process the model's messages.
"""
