"""Agent cards: read from files, and fetched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

import httpx
import msgspec
from a2a.client import errors
from a2a.client.card_resolver import A2ACardResolver, parse_agent_card
from a2a.types import AgentCard
from google.protobuf.json_format import ParseError

from greenroom.errors import AgentCardResolutionError
from greenroom.records.service_uri import is_loopback

_PORTS = {"http": 80, "https": 443}
_WELL_KNOWN = "/.well-known/"


def read_card(path: str) -> AgentCard:
    """Raises AgentCardResolutionError."""
    try:
        return parse_agent_card(msgspec.json.decode(Path(path).read_bytes()))
    except (OSError, msgspec.DecodeError, ParseError) as error:
        raise AgentCardResolutionError(f"the card {path} can't be used: {error}") from error


async def fetch_card(url: str, client: httpx.AsyncClient, headers: Mapping[str, str]) -> AgentCard:
    """url: of the card itself, or of the server, whose well-known path is then read.

    Raises AgentCardResolutionError, also for a card whose endpoints are of another origin: what is sent to the agent
    goes to the server that the developer named.
    """
    try:
        given = urlsplit(url)
        _check_is_secure(given, url)
        is_of_card = _WELL_KNOWN in given.path or given.path.endswith(".json")
        resolver = A2ACardResolver(client, url, "/") if is_of_card else A2ACardResolver(client, url)
        card = await resolver.get_agent_card(http_kwargs={"headers": dict(headers)})
        for interface in card.supported_interfaces:
            is_grpc = interface.protocol_binding == "GRPC"
            endpoint = urlsplit(interface.url if "//" in interface.url or not is_grpc else f"//{interface.url}")
            if not is_grpc:
                _check_is_secure(endpoint, interface.url)
            if (endpoint.hostname != given.hostname) if is_grpc else (_origin(endpoint) != _origin(given)):
                raise ValueError(f"its endpoint {interface.url!r} is of another origin than the card")
    except (errors.A2AClientError, httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise AgentCardResolutionError(f"the card {url} can't be used: {error}") from error
    return card


def is_url(source: str) -> bool:
    return source.startswith(("http://", "https://"))


def _check_is_secure(url: SplitResult, shown: str) -> None:
    if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname or "")):
        raise ValueError(f"{shown!r} must be an https URL (http is for this machine only); or give the card itself")


def _origin(url: SplitResult) -> tuple[str, str | None, int | None]:
    return url.scheme, url.hostname, url.port or _PORTS.get(url.scheme)
