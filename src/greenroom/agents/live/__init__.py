"""A live conversation: one connection to the model, kept open, with tools and hand-overs in its midst."""
