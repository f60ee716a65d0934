"""The fixtures of servers and of the command line, for the tests of monitoring."""

from __future__ import annotations

from tests.cli.conftest import cli
from tests.server.conftest import connection_limits, serve

__all__ = ["cli", "connection_limits", "serve"]
