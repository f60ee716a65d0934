"""Models behind OpenAI's chat completions: OpenAI itself, Ollama, vLLM, or any server that speaks the same."""

from __future__ import annotations

import importlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from greenroom.errors import MissingExtra, ModelError
from greenroom.models.model import BaseLlm
from greenroom.models.openai_messages import completion_arguments
from greenroom.models.openai_replies import GatheredReply, reply
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse

if TYPE_CHECKING:
    import openai
    from openai.types.chat import ChatCompletionChunk

_RETRYABLE_STATUS = {408, 409, 425, 429}
_SECRET = re.compile(r"\b(sk|key|Bearer)[-_ ][^\s'\",;)]{4,}", re.IGNORECASE)


class OpenAILlm(BaseLlm):
    """model: `openai/<name>` or the service's own name.

    base_url, api_key: as in the SDK, which otherwise reads OPENAI_BASE_URL and OPENAI_API_KEY; servers of one's own at
    `base_url` need no key. headers: sent with each request, in addition to the SDK's own. client: an `AsyncOpenAI` to
    use instead of all three; the caller closes it.
    """

    def __init__(
        self,
        model: str = "openai/gpt-4o-mini",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        headers: Mapping[str, str] | None = None,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        super().__init__(model=model)
        try:
            import openai
        except ImportError as error:
            raise MissingExtra("openai", "openai") from error
        self._sdk = openai
        # What the SDK's HTTP library (httpx, or httpx2 from 3.0) raises in the middle of a stream comes unwrapped.
        library = next(
            base.__module__ for base in openai.DefaultAsyncHttpxClient.__mro__ if base.__name__ == "AsyncClient"
        )
        self._transport_error: type[Exception] = importlib.import_module(library.partition(".")[0]).HTTPError
        self._base_url, self._api_key, self._headers = base_url, api_key, headers
        self._given, self._made = client, None

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        name = (llm_request.model or self.model).removeprefix("openai/")
        arguments = completion_arguments(llm_request, model=name)
        try:
            if stream:
                async for response in self._streamed(arguments):
                    yield response
            else:
                yield reply(await self._completions().create(**arguments))
        except self._sdk.OpenAIError as error:
            raise self._model_error(error) from error
        except self._transport_error as error:
            detail = f"{self.model}: the connection broke: {type(error).__name__}"
            raise ModelError(detail, model=self.model, retryable=True) from error

    async def close(self) -> None:
        client, self._made = self._made, None
        if client is not None:
            await client.close()

    async def _streamed(self, arguments: JsonObject) -> AsyncIterator[LlmResponse]:
        options: dict[str, Any] = {**arguments, "stream": True, "stream_options": {"include_usage": True}}
        gathered = GatheredReply()
        chunks: openai.AsyncStream[ChatCompletionChunk]
        async with await self._completions().create(**options) as chunks:
            async for chunk in chunks:
                for partial in gathered.add(chunk):
                    yield partial
        if not gathered.is_complete:
            raise ModelError(f"{self.model}: the stream ended before its end", model=self.model, retryable=True)
        yield gathered.response()

    def _completions(self) -> Any:
        """The arguments are made at run time, which the SDK's overloads can't follow."""
        return self._client().chat.completions

    def _client(self) -> openai.AsyncOpenAI:
        if self._given is not None:
            return self._given
        if self._made is None:
            key, url, headers = self._api_key, self._base_url, self._headers
            try:
                self._made = self._sdk.AsyncOpenAI(api_key=key, base_url=url, default_headers=headers)
            except self._sdk.OpenAIError:
                if url is None:
                    raise
                self._made = self._sdk.AsyncOpenAI(api_key="none", base_url=url, default_headers=headers)
        return self._made

    def _model_error(self, error: openai.OpenAIError) -> ModelError:
        sdk = self._sdk
        retryable = isinstance(error, sdk.APIConnectionError)
        what = type(error).__name__
        if isinstance(error, sdk.APIStatusError):
            status = error.status_code
            retryable = (status in _RETRYABLE_STATUS or status >= 500) and error.code != "insufficient_quota"
            what = f"HTTP {status}"
        said = str(getattr(error, "message", None) or error)
        client = self._given or self._made
        for secret in (self._api_key, client.api_key if client else None):
            if secret:
                said = said.replace(secret, "…")
        said = _SECRET.sub("…", said)
        return ModelError(f"{self.model}: {what}: {said}", model=self.model, retryable=retryable)
