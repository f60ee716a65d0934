"""Retrieval from corpora of Vertex AI's RAG engine.

Source: the Vertex AI API's `projects.locations.retrieveContexts`, v1, and `VertexRagStore` of its
tool list.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from greenroom.errors import AgentConfigError, ToolError
from greenroom.google_cloud.credentials import GoogleCredentials
from greenroom.invocation.user_context import ToolContext
from greenroom.models.by_name import wants_vertex
from greenroom.models.gemini.contents import gemini_version
from greenroom.records import wire
from greenroom.records.auth import ServiceAccount
from greenroom.records.base import JsonObject, JsonValue, Record
from greenroom.records.model_exchange import LlmRequest
from greenroom.records.tool_declaration import Tool
from greenroom.tools.retrieval.tool import NO_QUERY, BaseRetrievalTool, nothing_found, query_in
from greenroom.tools.web.http_client import Headers, HttpClient, HttpReply

AccessToken: TypeAlias = Callable[[], str | Awaitable[str]]

_CORPUS = re.compile(r"projects/([^/]+)/locations/([^/]+)/ragCorpora/[^/]+")
_TRANSIENT = (408, 429)


class RagResource(Record, kw_only=True):
    """A corpus, by its full resource name, or some of its files."""

    rag_corpus: str
    rag_file_ids: list[str] | None = None


class VertexAiRagRetrieval(BaseRetrievalTool):
    """Built into Gemini models on Vertex AI; for other models a function with the parameter `query`.

    rag_corpora or rag_resources: full resource names.

    similarity_top_k: maximal number of texts.
    vector_distance_threshold: texts farther away are left out.
    project, location: default to those in the corpus's name, then to GOOGLE_CLOUD_PROJECT and
        GOOGLE_CLOUD_LOCATION.
    access_token: defaults to the credentials that google-auth finds.
    base_url: of another endpoint.

    Raises AgentConfigError.
    """

    def __init__(
        self,
        *,
        name: str,
        description: str,
        rag_corpora: Sequence[str] | None = None,
        rag_resources: Sequence[RagResource] | None = None,
        similarity_top_k: int | None = None,
        vector_distance_threshold: float | None = None,
        project: str | None = None,
        location: str | None = None,
        access_token: AccessToken | None = None,
        base_url: str | None = None,
        timeout_seconds: float = 30,
    ) -> None:
        super().__init__(name=name, description=description)
        if bool(rag_corpora) == bool(rag_resources):
            raise AgentConfigError(f"Tool {name!r} needs either rag_corpora or rag_resources")

        self.rag_corpora = list(rag_corpora or ())
        self.rag_resources = list(rag_resources or ())
        self.similarity_top_k = similarity_top_k
        self.vector_distance_threshold = vector_distance_threshold
        self._project = project
        self._location = location
        self._access_token = access_token or GoogleCredentials(ServiceAccount(use_default_credential=True)).token
        self._base_url = base_url
        self._timeout_seconds = timeout_seconds

    async def process_llm_request(
        self,
        *,
        tool_context: ToolContext,
        llm_request: LlmRequest,
    ) -> None:
        if gemini_version(llm_request.model) is not None and _is_on_vertex(llm_request):
            llm_request.mark(Tool(retrieval={"vertexRagStore": self._store()}))
        else:
            await super().process_llm_request(tool_context=tool_context, llm_request=llm_request)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        """Returns the texts, best first, or that nothing was found. Raises ToolError when Vertex AI
        refuses.
        """
        query = query_in(args)
        if not query:
            return NO_QUERY

        try:
            token = self._access_token()
            token = await token if inspect.isawaitable(token) else token
        except PermissionError as error:
            raise ToolError(f"{self.name}: {error}") from error

        try:
            reply = await self._send(query, token)
        except ToolError as error:
            return {"error": f"Vertex AI: {error.detail}. The same call may work later."}

        if reply.status >= 500 or reply.status in _TRANSIENT:
            return {"error": f"Vertex AI answered with HTTP status {reply.status}. The same call may work later."}

        if not 200 <= reply.status < 300:
            problem = reply.text()[:500].strip()
            raise ToolError(f"{self.name}: Vertex AI refused with HTTP status {reply.status}: {problem}")

        try:
            contexts = msgspec.json.decode(reply.body, type=_RagReply).contexts.contexts
        except msgspec.DecodeError as error:
            raise ToolError(f"{self.name}: Vertex AI's answer can't be read: {error}") from error

        return [context.text for context in contexts if context.text] or nothing_found(query, "the corpus")

    def _store(self) -> JsonObject:
        store: JsonObject = {
            "ragCorpora": self.rag_corpora or None,
            "ragResources": wire.to_plain(self.rag_resources) or None,
            "similarityTopK": self.similarity_top_k,
            "vectorDistanceThreshold": self.vector_distance_threshold,
        }
        return {key: value for key, value in store.items() if value is not None}

    async def _send(self, query: str, token: str) -> HttpReply:
        """Raises ToolError when Vertex AI can't be reached."""
        client = HttpClient(
            allow_private_network_access=True,
            read_timeout_seconds=self._timeout_seconds,
        )
        headers: Headers = [(b"Authorization", f"Bearer {token}".encode()), (b"Content-Type", b"application/json")]
        async with aclosing(client):
            return await client.send(
                "POST",
                self._url(),
                headers=headers,
                content=wire.encode(self._question(query)),
            )

    def _url(self) -> str:
        if self.rag_corpora:
            first = self.rag_corpora[0]
        else:
            first = self.rag_resources[0].rag_corpus

        named = _CORPUS.fullmatch(first)

        project = self._project or (named[1] if named else os.environ.get("GOOGLE_CLOUD_PROJECT"))
        location = self._location or (named[2] if named else os.environ.get("GOOGLE_CLOUD_LOCATION"))
        if not project or not location:
            raise AgentConfigError(f"Tool {self.name!r} needs a project and a location, or the corpus's full name")

        base = self._base_url or f"https://{location}-aiplatform.googleapis.com"

        return f"{base.rstrip('/')}/v1/projects/{project}/locations/{location}:retrieveContexts"

    def _question(self, query: str) -> JsonObject:
        resources = self.rag_resources or [RagResource(rag_corpus=corpus) for corpus in self.rag_corpora]
        config: JsonObject = {}
        if self.similarity_top_k is not None:
            config["topK"] = self.similarity_top_k

        if self.vector_distance_threshold is not None:
            config["filter"] = {"vectorDistanceThreshold": self.vector_distance_threshold}

        question: JsonObject
        if config:
            question = {"text": query, "ragRetrievalConfig": config}
        else:
            question = {"text": query}

        return {"vertexRagStore": {"ragResources": wire.to_plain(resources)}, "query": question}


class _RetrievedContext(msgspec.Struct, rename="camel"):
    text: str = ""


class _Contexts(msgspec.Struct, rename="camel"):
    contexts: list[_RetrievedContext] = []


class _RagReply(msgspec.Struct, rename="camel"):
    contexts: _Contexts = msgspec.field(default_factory=_Contexts)


def _is_on_vertex(request: LlmRequest) -> bool:
    if request.is_on_vertex is not None:
        return request.is_on_vertex
    return (request.model or "").startswith("projects/") or wants_vertex()
