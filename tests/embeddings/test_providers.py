"""Embeddings of OpenAI's and Gemini's SDKs, against a server that speaks their formats."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.embeddings.gemini import GeminiEmbeddings
from greenroom.embeddings.openai import OpenAIEmbeddings
from greenroom.errors import ModelError
from greenroom.records.base import JsonObject

_TEXTS = ["", "b" * 3, *(f"text {number}" for number in range(40))]


class _Server:
    """Answers with vectors of a text's length and 1; texts of more than 100 characters are refused."""

    def __init__(self) -> None:
        self.requests: list[JsonObject] = []
        self.url = ""

    async def openai(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.requests.append(body)
        if any(len(text) > 100 for text in body["input"]):
            return JSONResponse({"error": {"message": "input is too long"}}, status_code=400)
        data = [{"index": at, "embedding": [len(text), 1.0]} for at, text in enumerate(body["input"])]
        return JSONResponse(
            {
                "object": "list",
                "model": body["model"],
                "data": data[::-1],
                "usage": {"prompt_tokens": 1, "total_tokens": 1},
            }
        )

    async def gemini(self, request: Request) -> JSONResponse:
        body = await request.json()
        self.requests.append(body)
        texts = [one["content"]["parts"][0]["text"] for one in body["requests"]]
        if any(len(text) > 100 for text in texts):
            return JSONResponse(
                {"error": {"code": 400, "message": "input is too long", "status": "INVALID_ARGUMENT"}}, status_code=400
            )
        return JSONResponse({"embeddings": [{"values": [len(text), 1.0]} for text in texts]})


@pytest.fixture
async def server() -> AsyncIterator[_Server]:
    ours = _Server()
    routes = [
        Route("/v1/embeddings", ours.openai, methods=["POST"]),
        Route("/{rest:path}", ours.gemini, methods=["POST"]),
    ]
    listener = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_config=None, lifespan="off"))
    task = asyncio.create_task(web.serve(sockets=[listener]))
    ours.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    yield ours
    web.should_exit = True
    await task


@pytest.fixture(params=["openai", "gemini"])
async def embeddings(request: pytest.FixtureRequest, server: _Server) -> AsyncIterator[BaseEmbeddings]:
    if request.param == "openai":
        made = OpenAIEmbeddings("m", base_url=f"{server.url}/v1", dimensions=2)
    else:
        made = GeminiEmbeddings("m", dimensions=2, api_key="k", http_options={"base_url": server.url})
    yield made
    await made.close()


async def test_texts_are_embedded_in_batches_and_in_order(embeddings: BaseEmbeddings, server: _Server) -> None:
    vectors = await embeddings.embed(_TEXTS)
    assert [vector[0] / vector[1] for vector in vectors] == pytest.approx([len(text) or 1 for text in _TEXTS])
    assert all(math.isclose(math.hypot(*vector), 1, abs_tol=1e-6) for vector in vectors)
    assert [len(body.get("input") or body["requests"]) for body in server.requests] == [32, 10]
    assert embeddings.model == "m:2"


async def test_a_long_text_is_cut_and_a_refusal_is_a_model_error(embeddings: BaseEmbeddings) -> None:
    with pytest.raises(ModelError, match="input is too long"):
        await embeddings.embed(["ü" * 101])
    embeddings.max_bytes = 101
    [vector] = await embeddings.embed(["ü" * 101])
    assert vector[0] / vector[1] == pytest.approx(50)


async def test_gemini_is_asked_differently_for_queries(server: _Server) -> None:
    embeddings = GeminiEmbeddings("m", api_key="k", http_options={"base_url": server.url})
    for is_query in (False, True):
        await embeddings.embed(["a"], is_query=is_query)
    tasks = [body["requests"][0]["taskType"] for body in server.requests]
    assert tasks == ["RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY"]
    await embeddings.close()


async def test_without_a_key_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for embeddings in (OpenAIEmbeddings(), GeminiEmbeddings()):
        with pytest.raises(ModelError, match=r"(?i)api.key"):
            await embeddings.embed(["a"])
