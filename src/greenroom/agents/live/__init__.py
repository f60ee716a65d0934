"""A live conversation: one connection to the model, kept open, with tool calls and transfers during it."""
