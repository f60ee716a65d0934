"""Gemini against the contract of models, on both backends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from google.oauth2.credentials import Credentials

from greenroom.models.gemini.llm import Gemini
from greenroom.testing.contracts.model import *  # noqa: F403
from tests.models.wire.gemini import GeminiServer


class GenerateContent(GeminiServer):
    model: Gemini


def without_tls(url: str) -> dict[str, Any]:
    """Options of a client that loads no certificates, which would take most of a test's time."""
    return {"base_url": url, "client_args": {"verify": False}, "async_client_args": {"verify": False}}


@pytest.fixture(params=["gemini-2.5-flash", "gemini-3-pro", "vertex"])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[GenerateContent]:
    async with GenerateContent().serving() as server:
        backend: dict[str, Any] = {"api_key": server.secret}
        if request.param == "vertex":
            credentials = Credentials(server.secret)  # type: ignore[no-untyped-call]
            backend = {"vertexai": True, "project": "desk", "location": "eu", "credentials": credentials}
        name = "gemini-2.5-flash" if request.param == "vertex" else request.param
        server.model = Gemini(name, client_kwargs={"http_options": without_tls(server.url)}, **backend)
        yield server
        await server.model.close()
