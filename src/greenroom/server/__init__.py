"""The HTTP server. The settings can be imported without loading the server.

`application`: `create_app`. `settings` and `configuration`: the settings, and how they are loaded.
`endpoints`: the table of endpoints, with the handlers in `routes` and the callers' rights in
`access`. For handlers, those of the gates included: `request_context`, `endpoint`, `replies`, `sse`,
`websocket`, `request_body` and `addresses`.
Internal: `server_state` and `readiness`, `router` and `websocket_endpoint`, which dispatch requests,
`cross_origin`, `openapi` with `field_docstrings`, `prometheus`, `inspection` and `app_logs`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_HOMES = {
    "create_app": "greenroom.server.application",
    "CorsSettings": "greenroom.server.settings",
    "ServerSettings": "greenroom.server.settings",
}

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from greenroom.server.application import create_app as create_app
    from greenroom.server.settings import CorsSettings as CorsSettings
    from greenroom.server.settings import ServerSettings as ServerSettings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found
