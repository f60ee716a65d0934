"""Functions by which a model controls a computer.

`computer` is the contract of a computer, and `toolset` the functions. `playwright` is a browser as a
computer, which `allowed_hosts` limits and whose files `downloads` receives. `xvfb` is a Linux desktop
as one: `desktop` starts its processes, which `process_group` ends, and `keyboard` knows its keys.
"""
