"""Gemini against the contract of models, on both backends."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
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


@contextlib.asynccontextmanager
async def serving_gemini(name: str, *, is_vertex: bool = False) -> AsyncGenerator[GenerateContent]:
    async with GenerateContent().serving() as server:
        backend: dict[str, Any] = {"api_key": server.secret}
        if is_vertex:
            credentials = Credentials(server.secret)  # type: ignore[no-untyped-call]
            backend = {"vertexai": True, "project": "desk", "location": "eu", "credentials": credentials}
        server.model = Gemini(name, client_kwargs={"http_options": without_tls(server.url)}, **backend)
        yield server
        await server.model.close()


@pytest.fixture(params=["gemini", "vertex"])
async def provider(request: pytest.FixtureRequest) -> AsyncIterator[GenerateContent]:
    async with serving_gemini("gemini-2.5-flash", is_vertex=request.param == "vertex") as server:
        yield server
