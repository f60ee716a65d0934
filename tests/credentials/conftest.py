from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.credentials.authorization_server import AuthorizationServer
from tests.server.serving import serving


@pytest.fixture
async def provider() -> AsyncIterator[AuthorizationServer]:
    server = AuthorizationServer()
    async with serving(server.app) as running:  # pyright: ignore[reportArgumentType]
        server.url = running.url
        yield server
