"""Gemini's context cache: makes, reuses and deletes cached contents, as ADK does it.

Its action is in the reply's `cache_metadata`, and thus in the session's log, from which the next
request continues: first only the fingerprint of the stable prefix (system instruction, tools, and
the contents before the newest messages of the user); once the same prefix comes again, the name of
a cache. Each holds all that is stable when it is made:

    request  contents        known prefix   action
    1        u1              none           remember the prefix of 0 contents
    2        u1 m1 u2        0, the same    make a cache of u1 m1, send u2
    3        u1 m1 u2 m2 u3  2, the same    use it, send u2 m2 u3
    9        u1 … m8 u9      2, the same    the cache has served its runs: make one of u1 … m8, send u9
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import Any

from greenroom.models.gemini.contents import gemini_version
from greenroom.records.base import JsonObject
from greenroom.records.model_exchange import ContextCacheConfig, LlmRequest, LlmResponse

_log = logging.getLogger("greenroom.models")

_PREFIX = ("system_instruction", "tools", "tool_config")


_REFUSALS = (400, 403, 404)
"""Statuses of a request whose cache is gone, or can't be used."""


async def send_with_cache(
    client: Any,
    arguments: JsonObject,
    request: LlmRequest,
    *,
    scope: Sequence[Any],
    send: Callable[[JsonObject], AsyncGenerator[LlmResponse]],
) -> AsyncGenerator[LlmResponse]:
    """The responses of `send`. scope: where a cache is valid, beside the model."""
    from google.genai.errors import ClientError

    plain = dict(arguments)
    metadata = await _apply_cache(client, arguments, request, scope)
    for attempt in (arguments, plain):
        has_begun = False
        try:
            async with aclosing(send(attempt)) as responses:
                async for response in responses:
                    has_begun = True
                    if not response.partial:
                        response.cache_metadata = metadata
                    yield response
            return
        except ClientError as error:
            if has_begun or "cache_name" not in metadata or error.code not in _REFUSALS:
                raise
            _log.warning("the context cache of %s could not be used: %s", arguments["model"], error)
            metadata = {name: metadata[name] for name in ("fingerprint", "contents_count")}


async def _apply_cache(
    client: Any,
    arguments: JsonObject,
    request: LlmRequest,
    scope: Sequence[Any],
) -> JsonObject:
    """Replaces the prefix in the arguments of `generate_content` by a cache, creating one if it is due. Returns the
    reply's `cache_metadata`.
    """
    config = request.cache_config
    contents = arguments["contents"]
    assert config is not None
    cached = request.cache_metadata or {}
    count = cached.get("contents_count", 0)
    prefix = _prefix(arguments, count, scope)

    is_same = "fingerprint" in cached and cached["fingerprint"] == _digest(prefix) and count < len(contents)
    now = time.time()
    if cached.get("cache_name"):
        if is_same and cached["expire_time"] > now and cached["invocations_used"] <= config.cache_intervals:
            _use(arguments, cached["cache_name"], count)
            return cached
        await _delete(client, cached["cache_name"])

    if not is_same:
        count = _stable_count(contents)
        return {"fingerprint": _digest(_prefix(arguments, count, scope)), "contents_count": count}

    count = max(count, _stable_count(contents))

    prefix = _prefix(arguments, count, scope)
    metadata: JsonObject = {"fingerprint": _digest(prefix), "contents_count": count}
    rest = _json([_dumped(content) for content in contents[count:]])
    if not _is_worth_it(arguments["model"], request, config, len(prefix) / (len(prefix) + len(rest))):
        return metadata

    try:
        name = await _create(client, arguments, config, count, now=now)
    except Exception as error:  # the service may refuse a cache for any reason; the request works without
        _log.warning("no context cache could be made for %s: %s", arguments["model"], error)
        return metadata

    _use(arguments, name, count)
    expires = now + config.ttl_seconds

    return {
        **metadata,
        "cache_name": name,
        "expire_time": expires,
        "invocations_used": 1,
        "created_at": now,
    }


def _prefix(arguments: JsonObject, count: int, scope: Sequence[Any]) -> str:
    config: JsonObject = arguments["config"].model_dump(
        mode="json",
        include=set(_PREFIX),
        exclude_none=True,
    )
    for tool in config.get("tools", ()):
        tool.get("function_declarations", []).sort(key=itemgetter("name"))

    config["tools"] = sorted(map(_json, config.get("tools", ())))
    config["contents"] = [_dumped(content) for content in arguments["contents"][:count]]

    return _json([arguments["model"], *scope, config])


def _digest(prefix: str) -> str:
    return hashlib.sha256(prefix.encode()).hexdigest()[:16]


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _dumped(content: Any) -> JsonObject:
    return content.model_dump(mode="json", exclude_none=True)


def _stable_count(contents: Sequence[Any]) -> int:
    """The number of contents before the newest ones of the user; some are left to be sent."""
    count = len(contents)
    while count and contents[count - 1].role == "user":
        count -= 1
    return min(count, max(len(contents) - 1, 0))


def _is_worth_it(model: str, request: LlmRequest, config: ContextCacheConfig, share: float) -> bool:
    """True for a prompt as large as the app wants, with a prefix (its share of the prompt) as large
    as the service demands.
    """
    tokens = request.cacheable_contents_token_count or 0
    least = 4096 if (gemini_version(model) or 0) >= 3 else 2048
    return tokens >= config.min_tokens and tokens * share >= least


async def _create(
    client: Any,
    arguments: JsonObject,
    config: ContextCacheConfig,
    count: int,
    *,
    now: float,
) -> str:
    from google.genai import types

    cache_config = types.CreateCachedContentConfig(
        http_options=types.HttpOptions(**config.create_http_options) if config.create_http_options else None,
        contents=arguments["contents"][:count] or None,
        ttl=f"{config.ttl_seconds}s",
        display_name=f"adk-cache-{int(now)}-{count}contents",
        **{name: getattr(arguments["config"], name) for name in _PREFIX},
    )
    return (await client.aio.caches.create(model=arguments["model"], config=cache_config)).name


def _use(arguments: JsonObject, name: str, count: int) -> None:
    arguments["contents"] = arguments["contents"][count:]
    without: JsonObject = dict.fromkeys(_PREFIX)
    arguments["config"] = arguments["config"].model_copy(update={**without, "cached_content": name})


async def _delete(client: Any, name: str) -> None:
    try:
        await client.aio.caches.delete(name=name)
    except Exception as error:  # it may have expired
        _log.debug("the context cache %s could not be deleted: %s", name, error)
