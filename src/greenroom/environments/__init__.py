"""Environments, in which an agent runs commands and edits files.

`environment` is the contract, `local` a folder of this machine, whose commands `process` starts, stops and bounds;
`files` are the records of files and the limits of what comes out.

`sandbox` is the contract of environments that can't reach the host. In local ones (`guest_sandbox`: `bubblewrap`,
`container`) runs one program, `guest`, with which the host exchanges messages (`guest_connection`). `container_engine`
starts and removes containers, whose standard streams are `container_streams`. In those of `webassembly`, the same
messages are exchanged with the scripts of `pyodide_guest`; `pyodide` finds and downloads what they need. `remote` is
the base of the sandboxes of services (`agent_engine`, `daytona`, `e2b` and `opensandbox`), in which `remote_program`
runs code.
"""
