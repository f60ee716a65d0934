"""Environments, in which an agent runs commands and edits files.

`environment` is the contract, `local` a folder of this machine.
"""
