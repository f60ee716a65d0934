"""The `greenroom` command.

- `main` is the entry point; `commands` lists the commands, each of which has a module of its name. `eval` has
  `evaluation`, `eval_cases` and `comparison`, `sessions` also `sessions_transfer` and `sessions_migrate`, `record` and
  `replay` are `recordings`, `serve` and `config` are `server_commands`, `check` uses the package `app_check`.
- Running a server: `serving` (settings, application), `server_start` (address, access, welcome), `server_log`,
  `http_server` (uvicorn), `http_protocol` (limits of connections).
- `fast_api`: ADK's `get_fast_api_app`, a server that other code starts.
- Shared by commands: `parameters`, `find_agent`, `data_folder`, `terminal`, `event_lines`, `chat`.
"""
