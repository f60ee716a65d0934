"""Credentials of tools: of users and of the app, and the tokens they are exchanged for."""
