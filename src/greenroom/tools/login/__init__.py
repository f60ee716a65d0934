"""How a tool is let in: credentials of the user and of the app, and what they are exchanged for."""
