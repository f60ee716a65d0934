"""Tools that agents can call.

`tool` and `toolset` are the contracts. `functions/` makes tools of Python functions, with the types
of `value_types/`; `builtin/` are ours. `mcp/`, `openapi/` and `application_integration/` bring
tools from servers, with `web/` and `login/` below them. `confirmation` asks a person before a call.
"""
