"""Runs one loaded GGUF file. The blocking library runs in its own threads, never in the event loop."""

from __future__ import annotations

import asyncio
import http.client
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import msgspec

from greenroom.embeddings.local import load_library, start_server
from greenroom.errors import ModelError
from greenroom.records.base import JsonObject

_SLOTS = 4
_PROMPT_CACHE_MIB = 128
_TIMEOUT_SECONDS = 60.0


class LlamaEngine:
    """Up to four requests run side by side in slots of one context; further ones wait.

    `context_tokens` are shared by the slots that are busy. Loading begins with the first request. users: how many
    models share the engine, counted by them.
    """

    def __init__(
        self, path: Callable[[], Path], *, context_tokens: int, model: str, threads: int | None = None
    ) -> None:
        self.context_tokens = context_tokens
        self.users = 0
        self._threads = threads
        self._model = model
        self._find = path
        self._key = secrets.token_urlsafe()
        self._pool = ThreadPoolExecutor(_SLOTS, thread_name_prefix="greenroom-local")
        self._loading: Future[Any] | None = None
        self._is_closing = threading.Event()

    async def stream(self, request: JsonObject) -> AsyncIterator[JsonObject]:
        """Chunks of a chat completion. Ending or cancelling the iteration stops the generation."""
        library = await self._loaded()
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[JsonObject | None] = asyncio.Queue()
        is_stopped = threading.Event()

        def deliver(chunk: JsonObject | None) -> bool:
            """Whether the library must stop the generation."""
            if not is_stopped.is_set():
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            return is_stopped.is_set() or self._is_closing.is_set()

        options = {**request, "stream": True, "stream_options": {"include_usage": True}}
        job = self._pool.submit(library.handle_chat_completions, options, deliver)
        job.add_done_callback(lambda _: deliver(None))

        try:
            while (chunk := await chunks.get()) is not None:
                yield self._checked(chunk)
            self._checked(job.result())
        finally:
            is_stopped.set()
            job.cancel()

    async def complete(self, **request: Any) -> JsonObject:
        """A whole completion of a `prompt` or of `messages`, temperature 0; a short one, since it
        can't be stopped.
        """
        library = await self._loaded()
        if "messages" in request:
            handle = library.handle_chat_completions
        else:
            handle = library.handle_completions
        return await self._run(handle, {"temperature": 0, "cache_prompt": True, **request})

    async def log_probabilities(self, prompts: Sequence[str], text: str) -> tuple[list[float], int]:
        """Log-probability of the text after each prompt, and the number of tokens used.

        The text's own tokens are forced by a grammar. Forcing characters instead would let the
        model cut them into other tokens than it has ever read, and the sums would mean nothing.
        """
        tokens: list[int] = (await self._post("/tokenize", {"content": text, "add_special": False}))["tokens"]
        grammar = "root ::= " + " ".join(f"<[{token}]>" for token in tokens)
        answer = await self.complete(
            prompt=list(prompts),
            max_tokens=len(tokens),
            logprobs=1,
            grammar=grammar,
        )
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        sums: list[float] = []
        for choice in choices:
            tokens_of_choice = choice["logprobs"]["content"]
            sums.append(sum(token["logprob"] for token in tokens_of_choice))

        return sums, answer["usage"]["total_tokens"]

    async def count_tokens(self, messages: Sequence[JsonObject]) -> int:
        """The length of these messages in the model's own chat format."""
        answer = await self._post("/v1/chat/completions/input_tokens", {"messages": list(messages)})
        return int(answer["input_tokens"])

    async def close(self) -> None:
        """Stops the running call and frees the model. The engine can't be used afterwards."""

        def work() -> None:
            self._pool.shutdown(cancel_futures=True)
            self._loading = None  # the last reference: the library's own thread ends here

        self._is_closing.set()
        await asyncio.to_thread(work)

    async def _loaded(self) -> Any:
        """The `xllamacpp.Server`, which has no types. Its callbacks return True to stop a generation."""
        loading = self._loading
        if loading is None or (loading.done() and loading.exception() is not None):  # the file may be there by now
            loading = self._pool.submit(self._load)
            self._loading = loading
        return await asyncio.shield(asyncio.wrap_future(loading))

    def _load(self) -> Any:
        library, params = load_library()
        params.n_ctx = self.context_tokens
        params.n_parallel = _SLOTS
        params.kv_unified = True
        params.cache_ram_mib = _PROMPT_CACHE_MIB
        params.api_keys = [self._key]
        if self._threads:
            params.cpuparams.n_threads = self._threads
            params.cpuparams_batch.n_threads = self._threads

        return start_server(library, params, self._find(), model=self._model)

    async def _post(self, path: str, body: JsonObject) -> JsonObject:
        """Posts a request that the library only offers over HTTP."""
        host = (await self._loaded()).listening_address.partition("://")[2]
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}

        def post() -> JsonObject:
            connection = http.client.HTTPConnection(host, timeout=_TIMEOUT_SECONDS)
            try:
                connection.request("POST", path, msgspec.json.encode(body), headers)
                return msgspec.json.decode(connection.getresponse().read(), type=JsonObject)
            finally:
                connection.close()

        return await self._run(post)

    async def _run(self, work: Callable[..., JsonObject | None], *args: JsonObject) -> JsonObject:
        return self._checked(await asyncio.get_running_loop().run_in_executor(self._pool, work, *args))

    def _checked(self, answer: JsonObject | None) -> JsonObject:
        if answer and "error" in answer:
            error = cast("JsonObject", answer["error"])
            raise ModelError(f"{self._model}: {error.get('message', error)}", model=self._model)
        return answer or {}
