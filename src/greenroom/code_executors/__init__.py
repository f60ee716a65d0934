"""Executors of code that a model writes.

`executor` is the contract, `unsafe_local` runs code as a process of this machine.
"""
