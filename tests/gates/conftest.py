"""The server's fixtures, for the gates' tests."""

from __future__ import annotations

from tests.server.conftest import connection_limits, serve, store

__all__ = ["connection_limits", "serve", "store"]
