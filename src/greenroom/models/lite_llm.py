"""Models through LiteLLM, a library that calls many services in the format of OpenAI's chat completions."""

from __future__ import annotations

import importlib
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from json import JSONDecodeError
from typing import Any, ClassVar

from greenroom.models.conversion import check_settings
from greenroom.models.model import LlmCapabilities
from greenroom.models.openai.chat import CompletionReply
from greenroom.models.openai.messages import PROVIDER, TAKEN, common_arguments, messages, reasoning_effort
from greenroom.models.openai.rules import ANY_SERVICE, MISTRAL, is_mistral
from greenroom.models.provider import ProviderLlm
from greenroom.models.provider_names import provider_in
from greenroom.models.requests.rules import RequestRules
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse

_OURS = frozenset({"messages", "tools", "stream"})
_BROKEN = {"TransportError", "ClientPayloadError", "ClientConnectionError", "ConnectionError"}
"""Classes of httpx, aiohttp and Python for connections that failed."""


def _library() -> Any:
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import downloads a price list
    library: Any = importlib.import_module("litellm")  # its pins keep it out of the environment of the checks
    library.suppress_debug_info = True  # else it prints advice with each error
    return library


class LiteLLMClient:
    """Calls LiteLLM. Subclass it to change requests or responses, and pass it as
    `LiteLlm(llm_client=…)`.
    """

    async def acompletion(self, model: Any, messages: Any, tools: Any, **kwargs: Any) -> Any:
        return await _library().acompletion(model=model, messages=messages, tools=tools, **kwargs)

    def completion(
        self,
        model: Any,
        messages: Any,
        tools: Any,
        stream: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Blocks; `LiteLlm` calls `acompletion` only."""
        return _library().completion(model=model, messages=messages, tools=tools, stream=stream, **kwargs)


class LiteLlm(ProviderLlm):
    """Any model that LiteLLM can call.

    model: a name of LiteLLM's, with the service before it: `bedrock/…`, `vertex_ai/…`,
    `ollama_chat/…`.

    llm_client: an object with LiteLLM's `acompletion`, in place of the library. drop_params: leaves out settings that
    the service doesn't take, else they are an error. arguments: of every completion, where the request says nothing
    else: `api_base`, `api_key`, `extra_headers`, `max_tokens`, `temperature`, `top_k`, `top_p` and so on; `messages`,
    `tools` and `stream` are left out. LiteLLM itself retries nothing unless `num_retries` is given.
    """

    extra: ClassVar[str] = "litellm"
    package: ClassVar[str] = "litellm"
    rules: ClassVar[RequestRules] = ANY_SERVICE

    def __init__(
        self, model: str, *, llm_client: Any = None, drop_params: bool | None = None, **arguments: Any
    ) -> None:
        super().__init__(model, client=llm_client)
        options: JsonObject = {
            "num_retries": 0,
            "max_retries": 0,
            "drop_params": drop_params,
            **arguments,
        }
        self._arguments = {name: value for name, value in options.items() if value is not None and name not in _OURS}

    @property
    def provider_name(self) -> str:
        return provider_in(self.model, default="litellm")

    def make_client(self) -> Any:
        return _library()

    def _load(self) -> Any:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import downloads a price list
        return super()._load()

    async def close_client(self, client: Any) -> None:
        await client.close_litellm_async_clients()

    @property
    def capabilities(self) -> LlmCapabilities:
        """The abilities in LiteLLM's table of models, once it is imported."""
        client = self._made_client or self._given_client
        takes_schemas = getattr(client, "supports_response_schema", None)
        return LlmCapabilities(output_schema_and_tools=takes_schemas is not None and takes_schemas(self.model))

    def rules_for(self, request: LlmRequest) -> RequestRules:
        if is_mistral(request.model or self.model):
            return MISTRAL
        return self.rules

    def secrets(self) -> Sequence[str | None]:
        return (self._arguments.get("api_key"),)

    def convert(self, request: LlmRequest) -> JsonObject:
        config = request.config
        name = (request.model or self.model).removeprefix("litellm/")
        check_settings(config, taken=TAKEN | {"top_k"}, model=name)
        request_options: JsonObject = {
            "messages": messages(request, is_mistral=is_mistral(name)),
            **common_arguments(request, model=name),
            "temperature": config.temperature,
            "top_p": config.top_p,
            "top_k": config.top_k,
            "max_tokens": config.max_output_tokens,
            "reasoning_effort": reasoning_effort(config),
        }
        arguments = {**self._arguments, **{name: value for name, value in request_options.items() if value is not None}}
        if config.max_output_tokens is not None:
            arguments.pop("max_completion_tokens", None)

        headers = self._arguments.get("extra_headers")
        if headers:
            arguments["extra_headers"] = {**headers, **arguments["extra_headers"]}

        return arguments

    async def send(
        self,
        client: Any,
        arguments: JsonObject,
        *,
        stream: bool,
    ) -> AsyncGenerator[LlmResponse]:
        gathered = LiteLlmReply(arguments["model"])
        if isinstance(client, LiteLLMClient):
            arguments = {"tools": None, **arguments}  # subclasses written for ADK require them

        try:
            if not stream:
                gathered.add_whole((await client.acompletion(**arguments)).model_dump())
                yield gathered.whole()
                return

            chunks = await client.acompletion(
                **arguments,
                stream=True,
                stream_options={"include_usage": True},
            )
            async with aclosing(aiter(chunks)) as opened:
                async for chunk in opened:
                    for partial in gathered.add(chunk.model_dump()):
                        yield partial
        except Exception as error:
            original: Any = getattr(error, "original_exception", None) or error  # amid a stream the service's is within
            if _is_broken_connection(error):  # LiteLLM sets status 500, though the service sent none
                raise ConnectionError(str(original)) from error

            for cause in _causes(error):
                if isinstance(cause, JSONDecodeError):  # for which LiteLLM sets status 500, too
                    raise cause from None

            if original is error:
                raise

            raise original from error

        is_cut = getattr(chunks, "received_finish_reason", "") is None  # LiteLLM then reports "stop"
        if gathered.is_complete and not is_cut:
            yield gathered.whole()


def _is_broken_connection(error: BaseException) -> bool:
    """True if the connection to the service failed: LiteLLM's own classes are the same for bugs and
    for bad replies.
    """
    for cause in _causes(error):
        names = {kind.__name__ for kind in type(cause).__mro__}
        if names & _BROKEN and not any("Timeout" in name for name in names):
            return True
    return False


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yields the error and its causes."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


class LiteLlmReply(CompletionReply):
    """A completion with Claude's blocks of thinking, whose signatures come beside the thoughts' text."""

    def __init__(self, model: str) -> None:
        super().__init__()
        self._model = model
        self._signature = ""

    def add_message(self, message: JsonObject) -> Iterator[LlmResponse]:
        for block in message.get("thinking_blocks") or ():
            self._signature += block.get("signature") or ""
        return super().add_message(message)

    def whole(self) -> LlmResponse:
        self.response.model_version = self._model.rpartition("/")[2]  # streamed chunks don't have the service's own
        return super().whole()

    def end_text(self, **options: Any) -> None:
        if self._signature and self._is_thought and self._texts:
            block = {
                "type": "thinking",
                "thinking": "".join(self._texts),
                "signature": self._signature,
            }
            options["metadata"] = {PROVIDER: {"name": "reasoning_content", "beside": {"thinking_blocks": [block]}}}
            options["signature"] = self._signature.encode()
            self._signature = ""

        super().end_text(**options)
