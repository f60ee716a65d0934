"""Functions by which a model controls a computer.

`computer` is the contract of a computer, `playwright` a browser as one, and `toolset` the
functions.
"""
