"""Executors of code that a model writes.

`executor` is the contract, `unsafe_local` runs code as a process of this machine, by way of
`process`, which bounds its time and output.
"""
