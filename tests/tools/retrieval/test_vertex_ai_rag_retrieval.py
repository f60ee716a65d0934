"""Looking things up in Vertex AI's corpora, against a local server that speaks its wire format."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, ToolError
from greenroom.models.fallback import FallbackModel
from greenroom.models.gemini.llm import Gemini
from greenroom.records import wire
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.retrieval.vertex_ai_rag_retrieval import RagResource, VertexAiRagRetrieval
from tests.agents.talk import Talk, call
from tests.models.wire.gemini import GeminiServer
from tests.server.quick_server import serving_routes

CORPUS = "projects/p1/locations/europe-west3/ragCorpora/7"
FOUND = {
    "contexts": {
        "contexts": [
            {"sourceUri": "gs://b/a.txt", "sourceDisplayName": "a", "text": "Cats purr.", "score": 0.2},
            {"sourceUri": "gs://b/b.txt", "score": 0.3},
            {"text": "Cats sleep.", "score": 0.4, "chunk": {"text": "Cats sleep."}},
        ]
    }
}


@dataclass
class Vertex:
    status: int = 200
    reply: Any = field(default_factory=lambda: FOUND)
    requests: list[tuple[str, str | None, Any]] = field(default_factory=list[Any])
    url: str = ""

    async def answer(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.requests.append((request.url.path, request.headers.get("authorization"), body))
        return Response(json.dumps(self.reply), self.status, media_type="application/json")


@asynccontextmanager
async def running(vertex: Vertex) -> AsyncGenerator[Vertex]:
    async with serving_routes(Route("/{path:path}", vertex.answer, methods=["POST"])) as address:
        vertex.url = address
        yield vertex


@pytest.fixture
async def vertex() -> AsyncIterator[Vertex]:
    async with running(Vertex()) as one:
        yield one


def rag(vertex: Vertex | None = None, **options: Any) -> VertexAiRagRetrieval:
    if not options.get("rag_resources"):
        options.setdefault("rag_corpora", [CORPUS])
    base_url = vertex.url if vertex is not None else None
    return VertexAiRagRetrieval(
        name="library", description="Books.", base_url=base_url, access_token=lambda: "t-1", **options
    )


async def look_up(tool: VertexAiRagRetrieval, query: str | None = "cats") -> dict[str, Any] | None:
    model = ScriptedModel([call("library", **({} if query is None else {"query": query})), "ok"])
    events = await Talk(LlmAgent(name="a", model=model, tools=[tool])).say("look it up")
    (declaration,) = model.requests[0].function_declarations()
    assert declaration.name == "library"
    assert set(declaration.json_schema()["properties"]) == {"query"}
    return events[1].get_function_responses()[0].response


async def test_other_models_call_a_function_that_asks_the_service_and_lists_the_texts(vertex: Vertex) -> None:
    assert await look_up(rag(vertex)) == {"result": ["Cats purr.", "Cats sleep."]}
    assert vertex.requests == [
        (
            "/v1/projects/p1/locations/europe-west3:retrieveContexts",
            "Bearer t-1",
            {"vertexRagStore": {"ragResources": [{"ragCorpus": CORPUS}]}, "query": {"text": "cats"}},
        )
    ]


async def test_files_number_distance_and_place_are_passed_on(vertex: Vertex) -> None:
    tool = rag(
        vertex,
        rag_resources=[RagResource(rag_corpus="7", rag_file_ids=["f-1"])],
        similarity_top_k=2,
        vector_distance_threshold=0.5,
        project="p2",
        location="us-central1",
    )
    await look_up(tool)
    ((path, _, body),) = vertex.requests
    assert path == "/v1/projects/p2/locations/us-central1:retrieveContexts"
    assert body == {
        "vertexRagStore": {"ragResources": [{"ragCorpus": "7", "ragFileIds": ["f-1"]}]},
        "query": {"text": "cats", "ragRetrievalConfig": {"topK": 2, "filter": {"vectorDistanceThreshold": 0.5}}},
    }


@pytest.mark.parametrize("reply", [{}, {"contexts": {}}, {"contexts": {"contexts": []}}])
async def test_nothing_found_is_answered_as_a_text(vertex: Vertex, reply: Any) -> None:
    vertex.reply = reply
    response = await look_up(rag(vertex))
    assert response is not None
    assert "cats" in response["result"]


async def test_a_call_without_a_query_is_answered_with_an_error(vertex: Vertex) -> None:
    response = await look_up(rag(vertex), None)
    assert response is not None
    assert "query" in response["error"]
    assert vertex.requests == []


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_passing_failure_is_reported_to_the_model(vertex: Vertex, status: int) -> None:
    vertex.status = status
    response = await look_up(rag(vertex))
    assert response is not None
    assert str(status) in response["error"]


async def test_a_service_that_is_not_there_is_reported_to_the_model() -> None:
    gone = Vertex()
    async with running(gone):
        pass
    response = await look_up(rag(gone))
    assert response is not None
    assert "could not be reached" in response["error"]


@pytest.mark.parametrize(
    ("status", "reply", "reason"),
    [(403, {"error": {"message": "no access"}}, "403.*no access"), (200, {"contexts": 7}, "can't be read")],
)
async def test_a_refusal_and_an_answer_of_another_kind_end_the_run(
    vertex: Vertex, status: int, reply: Any, reason: str
) -> None:
    vertex.status, vertex.reply = status, reply
    with pytest.raises(ToolError, match=reason):
        await look_up(rag(vertex))


@pytest.mark.parametrize(
    ("model", "on_vertex"),
    [
        ("gemini-2.5-pro", "true"),
        ("projects/p/locations/l/publishers/google/models/gemini-2.5-pro", None),
    ],
)
async def test_a_gemini_on_vertex_is_only_given_the_store(
    model: str, on_vertex: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_GENAI_USE_VERTEXAI", raising=False)
    if on_vertex is not None:
        monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", on_vertex)
    asked = ScriptedModel(["ok"], model=model)
    tool = rag(similarity_top_k=2, vector_distance_threshold=0.5)
    await Talk(LlmAgent(name="a", model=asked, tools=[tool])).say("hi")
    store = {"ragCorpora": [CORPUS], "similarityTopK": 2, "vectorDistanceThreshold": 0.5}
    assert wire.to_plain(asked.requests[0].config.tools) == [{"retrieval": {"vertexRagStore": store}}]


async def test_the_store_may_be_some_files_of_a_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", "true")
    asked = ScriptedModel(["ok"], model="gemini-2.5-pro")
    tool = rag(rag_resources=[RagResource(rag_corpus=CORPUS, rag_file_ids=["f-1"])])
    await Talk(LlmAgent(name="a", model=asked, tools=[tool])).say("hi")
    store = {"ragResources": [{"ragCorpus": CORPUS, "ragFileIds": ["f-1"]}]}
    assert wire.to_plain(asked.requests[0].config.tools) == [{"retrieval": {"vertexRagStore": store}}]


@pytest.mark.parametrize(("model", "on_vertex"), [("gemini-2.5-pro", "false"), ("claude-9", "true")])
async def test_a_gemini_elsewhere_and_other_models_on_vertex_get_the_function(
    model: str, on_vertex: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", on_vertex)
    asked = ScriptedModel(["ok"], model=model)
    await Talk(LlmAgent(name="a", model=asked, tools=[rag()])).say("hi")
    assert [d.name for d in asked.requests[0].function_declarations()] == ["library"]


async def test_a_place_that_nobody_named_is_taken_from_the_environment_or_missed(
    vertex: Vertex, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = rag(vertex, rag_corpora=["7"])
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "p3")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "l3")
    await look_up(tool)
    assert vertex.requests[0][0] == "/v1/projects/p3/locations/l3:retrieveContexts"
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT")
    with pytest.raises(AgentConfigError, match="a project and a location"):
        await look_up(tool)


async def test_credentials_that_do_not_work_end_the_run(vertex: Vertex) -> None:
    def refused() -> str:
        raise PermissionError("No access token")

    tool = VertexAiRagRetrieval(
        name="library", description="Books.", rag_corpora=[CORPUS], access_token=refused, base_url=vertex.url
    )
    with pytest.raises(ToolError, match="library: No access token"):
        await look_up(tool)


@pytest.mark.parametrize("options", [{}, {"rag_corpora": ["7"], "rag_resources": [RagResource(rag_corpus="7")]}])
def test_corpora_are_given_in_one_way(options: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError, match="either rag_corpora or rag_resources"):
        VertexAiRagRetrieval(name="library", description="Books.", **options)


@pytest.mark.parametrize(
    ("vertexai", "in_environment", "gets_store"),
    [(True, None, True), (False, "true", False), (None, "true", True), (None, None, False)],
)
async def test_a_gemini_made_for_vertex_gets_the_store_whatever_the_environment_says(
    vertexai: bool | None, in_environment: str | None, gets_store: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_GENAI_USE_ENTERPRISE", raising=False)
    monkeypatch.delenv("GOOGLE_GENAI_USE_VERTEXAI", raising=False)
    if in_environment is not None:
        monkeypatch.setenv("GOOGLE_GENAI_USE_VERTEXAI", in_environment)
    async with GeminiServer().serving() as server:
        options: dict[str, Any] = {"vertexai": vertexai, "base_url": server.url, "api_key": "k"}
        if gets_store:
            del options["api_key"]
            credentials = Credentials("token-1")  # type: ignore[no-untyped-call]
            options |= {"credentials": credentials, "project": "p", "location": "l"}
        model = Gemini("gemini-2.5-pro", **options)
        wrapped = FallbackModel([model])
        for asked in (model, wrapped):
            await Talk(LlmAgent(name="a", model=asked, tools=[rag()])).say("hi")
        await model.close()
    for body in server.seen:
        (tool,) = body["tools"]
        assert tool.keys() == ({"retrieval"} if gets_store else {"functionDeclarations"})
