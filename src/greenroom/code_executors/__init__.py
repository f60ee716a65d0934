"""Executors of code that a model writes.

`executor` is the contract, `unsafe_local` runs code as a process of this machine. Others run it elsewhere: in
sandboxes of Agent Engine (`agent_engine`). `remote` has what they share.
"""
