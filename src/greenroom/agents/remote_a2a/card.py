"""Agent cards: read from files, and fetched."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx
import msgspec
from a2a.client import errors
from a2a.client.card_resolver import A2ACardResolver, parse_agent_card
from a2a.types import AgentCard, AgentInterface
from google.protobuf.json_format import ParseError

from greenroom.errors import AgentCardResolutionError
from greenroom.records.service_uri import is_loopback

_PORTS = {"http": 80, "https": 443}
_WELL_KNOWN = "/.well-known/"
_OLD_PATH = "/.well-known/agent.json"
_OLDEST = (0, 3)


def read_card(path: str) -> AgentCard:
    """Raises AgentCardResolutionError."""
    try:
        return parse_agent_card(msgspec.json.decode(Path(path).read_bytes()))
    except (OSError, msgspec.DecodeError, ParseError) as error:
        raise AgentCardResolutionError(f"the card {path} can't be used: {error}") from error


async def fetch_card(url: str, client: httpx.AsyncClient, headers: Mapping[str, str]) -> AgentCard:
    """Fetches the card of a remote agent.

    url: of the card, or of the server, whose well-known path is then read.

    Raises AgentCardResolutionError, also for a card whose endpoints have another origin: messages to the agent are only
    sent to the server that the developer named.
    """
    try:
        card_url = urlsplit(url)
        _check_is_secure(card_url, url)

        is_of_card = _WELL_KNOWN in card_url.path or card_url.path.endswith(".json")
        options = {"headers": dict(headers)}
        if is_of_card:
            card = await A2ACardResolver(client, url, "/").get_agent_card(http_kwargs=options)
        else:
            card = await _well_known_card(A2ACardResolver(client, url), options)

        for interface in card.supported_interfaces:
            is_grpc = interface.protocol_binding == "GRPC"
            endpoint = urlsplit(interface.url if "//" in interface.url or not is_grpc else f"//{interface.url}")
            if not is_grpc:
                _check_is_secure(endpoint, interface.url)
            if (endpoint.hostname != card_url.hostname) if is_grpc else (_origin(endpoint) != _origin(card_url)):
                raise ValueError(f"its endpoint {interface.url!r} is of another origin than the card")
    except (errors.A2AClientError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise AgentCardResolutionError(f"the card {url} can't be used: {error}") from error

    return card


async def _well_known_card(resolver: A2ACardResolver, options: dict[str, Any]) -> AgentCard:
    """Fetches the card from the path of versions 0.3 and 1.0, else from that of earlier versions."""
    try:
        return await resolver.get_agent_card(http_kwargs=options)
    except errors.AgentCardResolutionError as error:
        if error.status_code != HTTPStatus.NOT_FOUND:
            raise
        with contextlib.suppress(errors.AgentCardResolutionError):
            return await resolver.get_agent_card(_OLD_PATH, http_kwargs=options)
        raise


def usable_card(card: AgentCard) -> AgentCard:
    """The card with interfaces that the SDK can use: JSON-RPC of version 0.2 is that of 0.3.

    Raises ValueError, which names the versions, for a card without such an interface.
    """
    old = [interface for interface in card.supported_interfaces if _version(interface) == (0, 2)]
    if any(interface.protocol_binding == "JSONRPC" for interface in old):
        original = card
        card = AgentCard()
        card.CopyFrom(original)
        for interface in card.supported_interfaces:
            if _version(interface) == (0, 2) and interface.protocol_binding == "JSONRPC":
                interface.protocol_version = "0.3"

    interfaces = card.supported_interfaces
    if interfaces and not any(_version(interface) >= _OLDEST for interface in interfaces):
        shown = ", ".join(f"{interface.protocol_binding} {interface.protocol_version}" for interface in interfaces)
        raise ValueError(f"it offers A2A in {shown}; JSON-RPC can be used from version 0.2 on, others from 0.3 on")

    return card


def _version(interface: AgentInterface) -> tuple[int, ...]:
    """Major and minor number; the oldest that can be used if there is none."""
    found = re.match(r"(\d{1,9})(?:\.(\d{1,9}))?", interface.protocol_version)
    return (int(found[1]), int(found[2] or 0)) if found else _OLDEST


def is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _check_is_secure(url: SplitResult, shown: str) -> None:
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname or "")):
        raise ValueError(f"{shown!r} must be an https URL (http is for this machine only); or give the card itself")


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)
