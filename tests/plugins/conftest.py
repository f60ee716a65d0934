"""A server for tests of what plugins do to runs over HTTP."""

from __future__ import annotations

from tests.server.conftest import connection_limits as connection_limits
from tests.server.conftest import serve as serve
from tests.server.conftest import store as store
