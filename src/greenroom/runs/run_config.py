"""The configuration of a run, merged from its app's, the server's and its request's."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec

from greenroom.records.run import AgentRunRequest, RunConfig, StreamingMode, default_max_llm_calls


class RunDefaults(NamedTuple):
    """Limits of runs whose request and app set none."""

    deadline_seconds: float | None
    max_llm_calls: int


def run_config_of(request: AgentRunRequest, base: RunConfig | None, max_llm_calls: int) -> RunConfig:
    """Merges the configurations of the app, the server and the request.

    base: the app's. max_llm_calls: the server's limit, where the app has none; a request may lower it.
    """
    mode = StreamingMode.SSE if request.streaming else StreamingMode.NONE
    is_plain = base is None and request.max_llm_calls is None
    if is_plain and not request.custom_metadata and not request.service_tier and not request.client_tools:
        return _plain_config(mode, max_llm_calls)

    config = RunConfig(
        custom_metadata=request.custom_metadata,
        service_tier=request.service_tier,
        client_tools=request.client_tools or [],
    ).over(base)
    config = with_default_limit(config, max_llm_calls)
    limit = config.max_llm_calls
    if request.max_llm_calls is not None and (limit <= 0 or request.max_llm_calls < limit):
        limit = request.max_llm_calls
    return msgspec.structs.replace(config, streaming_mode=mode, max_llm_calls=limit)


def with_default_limit(config: RunConfig, max_llm_calls: int) -> RunConfig:
    if config.max_llm_calls != default_max_llm_calls():
        return config
    return msgspec.structs.replace(config, max_llm_calls=max_llm_calls)


@lru_cache
def _plain_config(mode: StreamingMode, max_llm_calls: int) -> RunConfig:
    """The configuration of runs whose app and request set nothing."""
    return RunConfig(streaming_mode=mode, max_llm_calls=max_llm_calls)
