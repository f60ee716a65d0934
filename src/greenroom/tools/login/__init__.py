"""Credentials of tools: of users and of the app, and the tokens they are exchanged for.

`credential_provider` finds the credential of a call, or asks the user for one; `oauth2` is the
client of authorization servers.
"""
