"""The research team, with a small Wikipedia on this machine that has its two interfaces."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.examples.gallery import converse, responses, served
from tests.server.serving import Serving, serving

QUESTION = "Are heat pumps worth it in a cold country?"
ARTICLES = {
    "Heat pump": "A heat pump moves heat from a cold place to a warmer one. Its coefficient of performance is 3 to 4.",
    "Energy in Norway": "Two thirds of the households in Norway have a heat pump, more than anywhere else in Europe.",
    "Gas heater": "A gas heater is a space heater that burns natural gas or propane.",
}
PLAN = {"questions": ["How efficient are heat pumps?", "How common are they in cold countries?"]}
REPORT = (
    "Yes. A heat pump delivers three to four times the energy that it uses [Heat pump]. In Norway, where winters are "
    "cold, two thirds of the households have one [Energy in Norway]."
)


@asynccontextmanager
async def wikipedia() -> AsyncGenerator[str]:
    async def search(request: Request) -> Response:
        words = request.query_params["q"].lower().split()
        found = [title for title, text in ARTICLES.items() if any(word in f"{title} {text}".lower() for word in words)]
        pages = [{"id": 1, "title": title, "description": None} for title in found]
        return JSONResponse({"pages": pages[: int(request.query_params["limit"])]})

    async def article(request: Request) -> Response:
        assert request.headers["user-agent"].startswith("greenroom-example")
        title = request.query_params["titles"]
        page: dict[str, Any] = {"title": title, "missing": True}
        if title in ARTICLES:
            page = {"pageid": 1, "title": title, "extract": ARTICLES[title]}
        return JSONResponse({"query": {"pages": [page]}})

    app = Starlette(routes=[Route("/w/rest.php/v1/search/page", search), Route("/w/api.php", article)])
    async with serving(cast("Any", app)) as server:
        yield server.url


def _researcher(request: LlmRequest) -> Any:
    """Searches, reads, and answers with what it read."""
    is_efficiency = "efficient" in request.contents[0].text()
    title = "Heat pump" if is_efficiency else "Energy in Norway"
    answered = sum(bool(part.function_response) for content in request.contents for part in content.parts or ())
    if answered == 0:
        return call("search_wikipedia", words="heat pump efficiency" if is_efficiency else "Norway heating")
    if answered == 1:
        return call("read_article", title=title)
    finding = {"answer": ARTICLES[title], "articles": [title]}
    if "set_model_response" in {declaration.name for declaration in request.function_declarations()}:
        return call("set_model_response", **finding)
    return json.dumps(finding)


def _reply(request: LlmRequest) -> Any:
    """Nodes of a workflow are told by their instruction: a node's model is not told the node's name."""
    instruction = request.config.system_text()
    if "Split the user's question" in instruction:
        return json.dumps(PLAN)
    return REPORT if "Write a report" in instruction else _researcher(request)


def research_model() -> ScriptedModel:
    return ScriptedModel(_reply)


async def research(server: Serving) -> list[dict[str, Any]]:
    return await converse(server, "research_team", QUESTION)


async def test_two_questions_are_looked_up_side_by_side_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = research_model()
    async with wikipedia() as url:
        monkeypatch.setenv("WIKIPEDIA_URL", url)
        async with served("research_team", model, tmp_path) as server:
            events = await research(server)
            session = (await server.client.get("/apps/research_team/users/user/sessions/s-1")).json()

    assert session["state"]["sources"] == ["Energy in Norway", "Heat pump"]
    read = [response["result"] for response in responses(events) if isinstance(response.get("result"), str)]
    assert sorted(read) == sorted([ARTICLES["Heat pump"], ARTICLES["Energy in Norway"]])
    assert f"answers this question: {QUESTION}" in model.requests[-1].config.system_text()
    assert ARTICLES["Energy in Norway"] in model.requests[-1].contents[-1].text()
    assert events[-1]["content"]["parts"][0]["text"] == REPORT


async def test_an_article_that_does_not_exist_is_reported_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: list[Any] = [
        '{"questions": ["What about dragons?"]}',
        call("read_article", title="Dragons"),
        '{"answer": "Nothing is known.", "articles": []}',
        "I found nothing.",
    ]
    async with wikipedia() as url:
        monkeypatch.setenv("WIKIPEDIA_URL", url)
        async with served("research_team", ScriptedModel(script), tmp_path) as server:
            events = await converse(server, "research_team", "Dragons?")
    assert {"result": "There is no article 'Dragons'."} in responses(events)
