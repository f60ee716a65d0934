"""Executors of code that a model writes.

`executor` is the contract. `unsafe_local` runs code as a process of this machine, `environment` in an environment, by
way of `guest_program`, which is copied there.
"""
