"""Watches the models that a graph calls, in whatever thread its nodes run."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.tracers._streaming import _StreamingCallbackHandler  # as LangGraph does

T = TypeVar("T")

HIDDEN_TAGS = frozenset({"nostream", "langsmith:nostream"})
"""Of models whose text isn't shown. Source: LangGraph."""


class ModelObserver(Protocol):
    """Is notified of model calls, in the event loop of the run."""

    async def model_begins(
        self, call_id: UUID, messages: Sequence[BaseMessage], metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> None:
        """Raises what must stop the call."""

    def model_streams(self, call_id: UUID, chunk: BaseMessage) -> None: ...

    async def model_ends(self, call_id: UUID, message: AIMessage) -> None: ...

    async def model_fails(self, call_id: UUID, error: BaseException) -> None: ...


class _Route:
    """Passes the notifications on to the run's event loop.

    LangChain calls the same handlers from coroutines, which await an asynchronous one, and from threads, where errors
    of an asynchronous one are lost. So there are two handlers, and each notification is passed on by one of them.
    """

    def __init__(self, observer: ModelObserver) -> None:
        self.observer = observer
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    @property
    def is_own_loop(self) -> bool:
        """Whether the caller is a coroutine of the run's event loop."""
        return asyncio.get_running_loop() is self._loop

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Does the work in the event loop, and waits for it in this thread."""
        if threading.get_ident() == self._thread:
            work.close()
            raise RuntimeError(
                "An async node calls its model with invoke(), which blocks the whole server; it must await ainvoke()"
            )
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stream(self, call_id: UUID, chunk: BaseMessage) -> None:
        if threading.get_ident() == self._thread:
            self.observer.model_streams(call_id, chunk)
        else:
            self._loop.call_soon_threadsafe(self.observer.model_streams, call_id, chunk)


def handlers_for(observer: ModelObserver, *, streams: bool) -> list[BaseCallbackHandler]:
    """The callbacks of a graph's run. streams: models stream their replies, also where nodes don't ask for that."""
    route = _Route(observer)
    return [_InThreads(route), _StreamingInLoop(route) if streams else _InLoop(route)]


class _OnlyModels:
    """Leaves out the notifications that aren't about models, which cost time."""

    raise_error = True

    @property
    def ignore_chain(self) -> bool:
        return True

    @property
    def ignore_retriever(self) -> bool:
        return True

    @property
    def ignore_custom_event(self) -> bool:
        return True


class _InLoop(_OnlyModels, AsyncCallbackHandler):
    def __init__(self, route: _Route) -> None:
        self._route = route

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        tags: list[str] | None = None,
        **options: Any,
    ) -> None:
        if self._route.is_own_loop:
            begin = _begin(run_id, messages, metadata, tags, options)
            await self._route.observer.model_begins(*begin)

    async def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        tags: list[str] | None = None,
        **options: Any,
    ) -> None:
        if self._route.is_own_loop:
            begin = _begin(run_id, _of_prompts(prompts), metadata, tags, options)
            await self._route.observer.model_begins(*begin)

    async def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        if self._route.is_own_loop:
            await self._route.observer.model_ends(run_id, _message_of(response))

    async def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        if self._route.is_own_loop:
            await self._route.observer.model_fails(run_id, error)


class _StreamingInLoop(_InLoop, _StreamingCallbackHandler[Any]):
    """Its base makes chat models stream."""

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[T]) -> AsyncIterator[T]:
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[T]) -> Iterator[T]:
        return output


class _InThreads(_OnlyModels, BaseCallbackHandler):
    run_inline = True

    def __init__(self, route: _Route) -> None:
        self._route = route

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        tags: list[str] | None = None,
        **options: Any,
    ) -> None:
        if not _is_called_by_coroutine():
            begin = _begin(run_id, messages, metadata, tags, options)
            self._route.wait(self._route.observer.model_begins(*begin))

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        tags: list[str] | None = None,
        **options: Any,
    ) -> None:
        if not _is_called_by_coroutine():
            begin = _begin(run_id, _of_prompts(prompts), metadata, tags, options)
            self._route.wait(self._route.observer.model_begins(*begin))

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, **_: Any) -> None:
        message = getattr(chunk, "message", None)
        if message is not None:
            self._route.stream(run_id, message)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        if not _is_called_by_coroutine():
            self._route.wait(self._route.observer.model_ends(run_id, _message_of(response)))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        if not _is_called_by_coroutine():
            self._route.wait(self._route.observer.model_fails(run_id, error))


def _is_called_by_coroutine() -> bool:
    """Whether the caller of the calling method is a coroutine, which awaits the asynchronous handler too."""
    return bool(sys._getframe(2).f_code.co_flags & inspect.CO_COROUTINE)


def _begin(
    run_id: UUID,
    messages: list[list[BaseMessage]],
    metadata: dict[str, Any] | None,
    tags: list[str] | None,
    options: Mapping[str, Any],
) -> tuple[UUID, Sequence[BaseMessage], Mapping[str, Any], Mapping[str, Any]]:
    described = dict(metadata or {})
    described["tags"] = tags or []
    return run_id, messages[0] if messages else [], described, options.get("invocation_params") or {}


def _of_prompts(prompts: Sequence[str]) -> list[list[BaseMessage]]:
    return [[HumanMessage(prompt) for prompt in prompts[:1]]]


def _message_of(response: LLMResult) -> AIMessage:
    generation = response.generations[0][0] if response.generations and response.generations[0] else None
    if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
        return generation.message
    return AIMessage(generation.text if generation is not None else "")
