"""Environments, in which an agent runs commands and edits files.

`environment` is the contract, `local` a folder of this machine, whose commands `process` starts, stops and bounds;
`files` are the records of files and the limits of what comes out. `remote` is the base of the sandboxes of services:
`daytona` and `e2b`.
"""
