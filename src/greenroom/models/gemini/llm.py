"""Gemini through the Gemini API, or on Google's Vertex AI."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from greenroom.errors import NotOffered
from greenroom.models.attempts import RetryPolicy
from greenroom.models.by_name import wants_vertex
from greenroom.models.conversion import refused
from greenroom.models.gemini.contents import gemini_version, generate_arguments
from greenroom.models.gemini.reply import ContentReply, continuation_token, plain
from greenroom.models.gemini.rules import RULES
from greenroom.models.model import BaseLlmConnection, LlmCapabilities
from greenroom.models.provider import ProviderLlm
from greenroom.models.provider_names import GEMINI, VERTEX_AI
from greenroom.models.requests.rules import RequestRules
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    from google import genai

KEY_VARIABLES = ("GOOGLE_API_KEY", "GEMINI_API_KEY")


class Gemini(ProviderLlm):
    """Gemini, over the Gemini API or Vertex AI.

    model: the service's own name, `models/…`, or the path of a model or endpoint on Vertex.

    api_key: else GOOGLE_API_KEY, else GEMINI_API_KEY. vertexai, project, location, credentials (of `google.auth`): else
    GOOGLE_GENAI_USE_ENTERPRISE or GOOGLE_GENAI_USE_VERTEXAI, GOOGLE_CLOUD_PROJECT, GOOGLE_CLOUD_LOCATION and the
    environment's default credentials. base_url, headers: of a proxy. retry_options: as in the API's
    `HttpRetryOptions`. speech_config: for requests without one. client_kwargs: further arguments of the SDK's client.
    client: a `genai.Client` to use instead of all these; the caller closes it.
    """

    extra: ClassVar[str] = "gemini"
    package: ClassVar[str] = "google.genai"
    rules: ClassVar[RequestRules] = RULES

    def __init__(
        self,
        model: str = "gemini-2.5-flash",
        *,
        api_key: str | None = None,
        vertexai: bool | None = None,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
        api_version: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_options: Any = None,
        speech_config: Any = None,
        use_interactions_api: bool = False,
        client: genai.Client | None = None,
        client_kwargs: JsonObject | None = None,
    ) -> None:
        super().__init__(model, client=client)
        if use_interactions_api:
            raise NotOffered(
                "Gemini(use_interactions_api=True) is not offered: leave it out. Sessions keep the conversation, and "
                "GoogleSearchTool(bypass_multi_tools_limit=True) works beside other tools without it"
            )

        self._api_key = api_key
        self._speech_config = speech_config
        self._backend: JsonObject = {
            "vertexai": vertexai, "project": project, "location": location, "credentials": credentials
        }  # fmt: skip
        if hasattr(retry_options, "model_dump"):
            retry_options = retry_options.model_dump(exclude_none=True)

        if retry_options:
            self.retry_policy = RetryPolicy.of(retry_options)

        self._http: JsonObject = {
            "base_url": base_url,
            "api_version": api_version,
            "headers": headers,
        }
        self._client_kwargs = client_kwargs or {}

    def make_client(self) -> genai.Client:
        from google import genai

        http = {**self._http, "api_version": self._http["api_version"] or os.environ.get("GOOGLE_GENAI_API_VERSION")}
        options: JsonObject = {
            **self._backend,
            "api_key": self._api_key,
            "http_options": {name: value for name, value in http.items() if value is not None} or None,
            **self._client_kwargs,
        }
        return genai.Client(**{name: value for name, value in options.items() if value is not None})

    @property
    def provider_name(self) -> str:
        return VERTEX_AI if self.is_on_vertex else GEMINI

    @property
    def capabilities(self) -> LlmCapabilities:
        """Schemas together with tools are taken on Vertex AI, by Gemini 2 and newer."""
        return LlmCapabilities(output_schema_and_tools=self.is_on_vertex and (gemini_version(self.model) or 0) >= 2)

    @property
    def is_on_vertex(self) -> bool:
        client: Any = self._made_client or self._given_client
        is_vertex: bool | None
        if client is not None:
            is_vertex = client.vertexai
        else:
            is_vertex = self._backend["vertexai"]
        return wants_vertex() if is_vertex is None else is_vertex

    async def close_client(self, client: Any) -> None:
        await client.aio.aclose()
        await asyncio.to_thread(client.close)

    def secrets(self) -> Sequence[str | None]:
        return self._api_key, *(os.environ.get(name) for name in KEY_VARIABLES)

    def convert(self, request: LlmRequest) -> JsonObject:
        client: Any = self._made_client or self._given_client
        name = (request.model or self.model).removeprefix("gemini/")
        arguments = generate_arguments(request, model=name, is_vertex=client.vertexai)
        config: JsonObject = arguments["config"]
        if self._speech_config is not None:
            config.setdefault("speech_config", self._speech_config)

        if request.cache_config is not None and request.config.cached_content is None:
            arguments["cached"] = request

        return arguments

    def _typed(self, arguments: JsonObject) -> JsonObject:
        """The arguments as the SDK's records; it is faster with plain ones. Raises
        MessageConversionError.
        """
        from google.genai import types

        try:
            config = types.GenerateContentConfig(**arguments["config"])
            return {
                **arguments,
                "config": config,
                "contents": [types.Content(**c) for c in arguments["contents"]],
            }
        except ValueError as error:
            raise refused(f"{self.model}: {error}", model=self.model) from error

    @asynccontextmanager
    async def connect(self, llm_request: LlmRequest) -> AsyncGenerator[BaseLlmConnection]:
        """Opens a connection to the Live API; `live_connect_config` of the request has its settings."""
        client = await self.load()
        from google.genai import types

        from greenroom.models.gemini.live import GeminiLiveConnection, live_config
        from greenroom.models.live import connection_error

        name = (llm_request.model or self.model).removeprefix("gemini/")
        version = self._http["api_version"] or os.environ.get("GOOGLE_GENAI_API_VERSION")
        prepared, names = RULES.prepare(llm_request)
        config = live_config(prepared, model=name, is_vertex=client.vertexai, api_version=version)
        if self._speech_config is not None:
            config.setdefault("speech_config", self._speech_config)

        async with AsyncExitStack() as stack:
            try:
                settings = types.LiveConnectConfig(**config)
                session = await stack.enter_async_context(client.aio.live.connect(model=name, config=settings))
            except ValueError as error:
                raise refused(f"{self.model}: {error}", model=self.model) from error
            except Exception as error:
                raise connection_error(error, model=self.model, secrets=self.secrets()) from error

            connection = GeminiLiveConnection(
                session,
                model=name,
                is_vertex=client.vertexai,
                secrets=self.secrets(),
            )
            connection.use(RULES, names)
            yield connection

    async def count(self, client: Any, arguments: JsonObject) -> int | None:
        from google.genai import types

        typed = self._typed(arguments)

        config = typed["config"]
        contents = typed["contents"]
        counted: Any = types.CountTokensConfig(
            system_instruction=config.system_instruction,
            tools=config.tools,
        )
        if not client.vertexai:  # counts contents only
            extra = [part for part in (config.system_instruction, *(config.tools or ())) if part is not None]
            texts = [part if isinstance(part, str) else part.model_dump_json(exclude_none=True) for part in extra]
            contents = [types.Content(role="user", parts=[types.Part(text=t) for t in texts]), *contents]
            counted = None

        count_reply = await client.aio.models.count_tokens(
            model=arguments["model"],
            contents=contents,
            config=counted,
        )

        return count_reply.total_tokens

    def send(
        self,
        client: Any,
        arguments: JsonObject,
        *,
        stream: bool,
    ) -> AsyncGenerator[LlmResponse]:
        request: LlmRequest | None = arguments.get("cached")
        if request is None:
            return self._send(client, arguments, stream=stream)

        arguments = self._typed(arguments)
        del arguments["cached"]
        from greenroom.models.gemini.cache import send_with_cache

        scope = self._backend["project"], self._backend["location"]
        send = partial(self._send, client, stream=stream)

        return send_with_cache(client, arguments, request, scope=scope, send=send)

    async def _send(
        self,
        client: Any,
        arguments: JsonObject,
        *,
        stream: bool,
    ) -> AsyncGenerator[LlmResponse]:
        reply = ContentReply()
        try:
            if not stream:
                reply.add_whole(plain(await client.aio.models.generate_content(**arguments)))
            else:
                token: str | None = ""
                while token is not None:  # the service ends a long reply in several streams
                    request = await _request_of(client, arguments, token=token)
                    token = None
                    async with aclosing(await client._api_client.async_request_streamed(*request)) as chunks:
                        async for chunk in chunks:
                            data: JsonObject = msgspec.json.decode(chunk.body)
                            token = continuation_token(data) or token
                            for shown in reply.add(data):
                                yield shown
        except ValueError as error:
            if "only supported in" in str(error):  # the SDK refuses features that this backend lacks
                raise refused(f"{self.model}: {error}", model=self.model) from error
            if isinstance(arguments["config"], dict):
                self._typed(arguments)  # raises if the SDK can't read the request
            raise

        if reply.is_complete or not stream:
            yield reply.whole()


class _GeminiRequest(Exception):
    """Carries the arguments of a request that the SDK was about to send."""


class _CapturingApiClient:
    """The SDK's API client, which raises `_GeminiRequest` in place of sending one."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def async_request_streamed(self, *arguments: Any) -> Any:
        raise _GeminiRequest(*arguments)


async def _request_of(client: Any, arguments: JsonObject, *, token: str) -> tuple[Any, ...]:
    """The request of `generate_content_stream`, converted by the SDK.

    token: of the stream that it continues, or empty.

    The SDK would convert each chunk of the reply by its type, which costs more than all else here.
    """
    from google.genai.models import AsyncModels

    make_models: Any = AsyncModels
    try:
        async for _ in await make_models(_CapturingApiClient(client._api_client)).generate_content_stream(**arguments):
            pass
    except _GeminiRequest as request:
        method, path, body, *options = request.args
        return method, path, {**body, **({"continuationToken": token} if token else {})}, *options

    raise AssertionError("the SDK sent no request")
