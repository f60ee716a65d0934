"""The base of models behind a vendor's SDK: its import, its client, its errors."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

from greenroom.errors import GreenroomError, MissingExtra, ModelError
from greenroom.models.model import BaseLlm
from greenroom.models.model_errors import ModelErrorCategory, model_error, new_model_error
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import LlmRequest, LlmResponse


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the package above it
        return False


class ProviderLlm(BaseLlm):
    """A model behind a vendor's SDK, which is imported in a thread, with its first request or by `load`.

    A subclass names the package and its extra, makes the client, converts requests, and sends them. Raises MissingExtra
    when it is constructed without the package.
    """

    extra: ClassVar[str]
    package: ClassVar[str]

    def __init__(self, model: str, *, client: Any = None) -> None:
        super().__init__(model=model)
        if not is_installed(self.package):
            raise MissingExtra(self.extra, self.package)
        self._given_client, self._made_client = client, None
        self._loading: asyncio.Lock | None = None

    @abstractmethod
    def make_client(self) -> Any:
        """A client of the SDK, which is imported. Called in a thread; what it raises is an authentication error."""

    @abstractmethod
    def convert(self, request: LlmRequest) -> Any:
        """The arguments of the SDK's call. Raises MessageConversionError for what the provider can't take."""

    @abstractmethod
    def send(self, client: Any, arguments: Any, *, stream: bool) -> AsyncGenerator[LlmResponse]:
        """Yields the responses; what it raises becomes a ModelError."""

    def secrets(self) -> Sequence[str | None]:
        """What must not stand in error messages."""
        return ()

    async def load(self) -> Any:
        """Imports the SDK and makes the client, off the event loop. Returns the client."""
        client = self._given_client or self._made_client
        if client is None:
            self._loading = self._loading or asyncio.Lock()
            async with self._loading:
                client = self._made_client or await asyncio.to_thread(self._load)
                self._made_client = client
        return client

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        client = self._given_client or self._made_client or await self.load()
        arguments = self.convert(llm_request)
        retries: JsonObject | None = (llm_request.config.http_options or {}).get("retry_options")
        if retries and retries.get("attempts") and hasattr(client, "with_options"):
            client = client.with_options(max_retries=retries["attempts"] - 1)
        whole: LlmResponse | None = None
        try:
            async with aclosing(self.send(client, arguments, stream=stream)) as responses:
                async for response in responses:
                    if response.partial:
                        if stream:
                            yield response
                    else:
                        whole = response
        except GreenroomError:
            raise
        except Exception as error:  # SDKs let the errors of their HTTP and JSON libraries through
            raise model_error(error, model=self.model, secrets=self.secrets()) from error
        if whole is None:
            raise self.broken("the stream ended before its end")
        yield whole

    async def close(self) -> None:
        client, self._made_client = self._made_client, None
        if client is not None:
            await self.close_client(client)

    async def close_client(self, client: Any) -> None:
        await client.close()

    def broken(self, reason: str) -> ModelError:
        return new_model_error(
            f"{self.model}: Network error: {reason}", model=self.model, category=ModelErrorCategory.NETWORK_ERROR
        )

    def _load(self) -> Any:
        importlib.import_module(self.package)
        try:
            return self.make_client()
        except GreenroomError:
            raise
        except Exception as error:  # a missing key or project, by whatever name the SDK has for it
            found = model_error(error, model=self.model, secrets=self.secrets())
            raise new_model_error(
                found.detail, model=self.model, category=ModelErrorCategory.AUTH_ERROR, retryable=False
            ) from error
