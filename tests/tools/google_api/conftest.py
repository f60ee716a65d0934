from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from tests.credentials.authorization_server import AuthorizationServer
from tests.server.serving import serving
from tests.tools.google_api.server import GoogleServer


@pytest.fixture
async def google() -> AsyncIterator[GoogleServer]:
    server = GoogleServer()
    async with serving(cast("Any", server)) as running:
        server.url = running.url
        yield server


@pytest.fixture
async def provider() -> AsyncIterator[AuthorizationServer]:
    server = AuthorizationServer()
    async with serving(cast("Any", server.app)) as running:
        server.url = running.url
        yield server
