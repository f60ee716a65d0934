"""Plugins: hooks for all agents of an app, called before the callbacks of a single agent.

`plugin` is the contract. Every other module is one plugin, except for `recordings_file`, the file
that `recording` writes and `replay` reads. `guardrails` is a package.
"""
