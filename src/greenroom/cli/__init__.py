"""The `greenroom` command.

`main` is the entry point, `commands` the list of commands. `run`, `check`, `recordings`, `evaluation`, `improvement`,
`models`, `database`, `access`, `sessions…`, `mcp` and `server_commands` each implement what they are named after.
`serving`, `server_start`, `server_log`, `http_server` and `http_protocol` run a server. `parameters`, `terminal`,
`event_lines`, `chat` and `data_folder` are shared by commands.
"""
