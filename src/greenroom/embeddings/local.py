"""Embeddings of a GGUF model in this process, without a network."""

from __future__ import annotations

import asyncio
import operator
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

from greenroom.embeddings.embeddings import BaseEmbeddings
from greenroom.errors import MissingExtra, ModelError
from greenroom.records.base import JsonObject

_MAX_TOKENS = 1024
_METADATA_BYTES = 1 << 20
"""The architecture's keys are at the beginning of a GGUF file, before the tokenizer's tables."""

_STATEMENTS = (
    "The meeting takes place on Monday morning.",
    "I like to go for a walk after dinner.",
    "The order was shipped from the warehouse yesterday.",
    "Her brother repairs old radios in his garage.",
)
_QUESTIONS = (
    "When does the meeting take place?",
    "What do I like to do after dinner?",
    "Where was the order shipped from?",
    "Who repairs old radios in a garage?",
)


class LocalEmbeddings(BaseEmbeddings):
    """Embeds with a GGUF file, through xllamacpp. The file is loaded with the first text.

    Models for embeddings work best. With a model for text generation, the embedding is the mean over the tokens, minus
    the common component of all texts of that kind (statements, questions), which would hide the differences.
    """

    max_bytes = _MAX_TOKENS - 8  # leaves room for the tokens that models add
    batch_size = 8

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path).expanduser()
        super().__init__(f"local/{self._path.name}")
        self._server: Any = None
        self._common: dict[bool, Sequence[float]] = {}
        # The library's calls block, and are made one at a time.
        self._thread = ThreadPoolExecutor(1, "greenroom-embeddings")

    async def embed_batch(
        self,
        texts: Sequence[str],
        *,
        is_query: bool,
    ) -> Sequence[Sequence[float]]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embed, list(texts), is_query)

    async def close(self) -> None:
        def free() -> None:
            self._thread.shutdown(cancel_futures=True)
            self._server = None

        await asyncio.to_thread(free)

    def _embed(self, texts: list[str], is_query: bool) -> list[list[float]]:
        if self._server is None:
            self._load()
        vectors = self._vectors(texts)
        common = self._common.get(is_query)
        if common is None:
            return vectors
        return [list(map(operator.sub, vector, common)) for vector in vectors]

    def _load(self) -> None:
        library, params = load_library()
        if not self._path.is_file():
            raise ModelError(f"There is no model file at {self._path.absolute()}", model=self.model)

        params.n_ctx = params.n_batch = params.n_ubatch = _MAX_TOKENS
        params.n_parallel = 1
        params.embedding = True
        with self._path.open("rb") as file:
            is_generating = b".pooling_type" not in file.read(_METADATA_BYTES)

        if is_generating:
            params.pooling_type = library.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN

        self._server = start_server(library, params, self._path, model=self.model)
        if is_generating:
            self._common = {False: _mean(self._vectors(_STATEMENTS)), True: _mean(self._vectors(_QUESTIONS))}

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        answer = cast("JsonObject", self._server.handle_embeddings({"input": list(texts)}))
        if "error" in answer:
            message = cast("JsonObject", answer["error"]).get("message")
            raise ModelError(f"{self.model}: {message}", model=self.model)
        found = sorted(cast("list[Any]", answer["data"]), key=lambda one: one["index"])
        return [one["embedding"] for one in found]


def load_library() -> tuple[Any, Any]:
    """xllamacpp, which has no types, and parameters for a quiet server on half the processors.

    The library insists on listening on 127.0.0.1; a key that nobody else has keeps the port shut.
    Raises MissingExtra.
    """
    try:
        import xllamacpp  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise MissingExtra("local", "xllamacpp") from error

    library = cast("Any", xllamacpp)
    params = library.CommonParams()
    params.warmup = False
    params.verbosity = -1
    params.ui = False
    params.api_keys = [secrets.token_urlsafe()]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = _half_the_processors()

    return library, params


def start_server(library: Any, params: Any, path: Path, *, model: str) -> Any:
    """Loads a GGUF file. Raises ModelError."""
    params.model.path = str(path)
    try:
        return library.Server(params)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"{path} can't be loaded: {error}", model=model) from error


def _half_the_processors() -> int:
    """The rest is for the event loop, and for others: as its threads wait for each other by
    spinning, llama.cpp becomes ten times slower, not two, when they don't all get a processor.
    """
    if hasattr(os, "sched_getaffinity"):
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, count // 2)


def _mean(vectors: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(vectors) for values in zip(*vectors, strict=True)]
