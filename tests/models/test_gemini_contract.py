"""Gemini against the contract of models, on both backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from greenroom.models.gemini import Gemini
from greenroom.testing.contracts.model import *  # noqa: F403
from tests.models.wire.gemini import GeminiServer


class GenerateContent(GeminiServer):
    model: Gemini


@pytest.fixture(params=["gemini-2.5-flash", "gemini-3-pro", "vertex"])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[GenerateContent]:
    async with GenerateContent().serving() as server:
        if request.param == "vertex":
            credentials = Credentials(server.secret)  # type: ignore[no-untyped-call]
            backend: dict[str, Any] = {
                "vertexai": True,
                "project": "desk",
                "location": "eu",
                "credentials": credentials,
            }
            server.model = Gemini("gemini-2.5-flash", base_url=server.url, **backend)
        else:
            server.model = Gemini(request.param, api_key=server.secret, base_url=server.url)
        yield server
        await server.model.close()
