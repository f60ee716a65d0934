"""Agents of other frameworks, hosted as they are.

`hosted` is the base of their adapters: what a turn begins with, and how its progress is stored.
`model_call` is a model call that the framework makes. Each adapter is a module or a package of its
own, imported on first use.
"""
