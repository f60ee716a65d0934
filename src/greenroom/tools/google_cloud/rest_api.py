"""Requests to Google's REST APIs, with credentials of `google.auth`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import cast
from urllib.parse import quote, urlencode

import msgspec

from greenroom.errors import ToolError
from greenroom.google_cloud.credentials import GoogleCredentials
from greenroom.records.auth import ServiceAccount
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.result import shortened
from greenroom.tools.web.http_client import Headers, HttpClient, HttpReply
from greenroom.version import __version__

Query = Mapping[str, str | int | bool | list[str] | None]
"""Parameters of a URL; None leaves one out, a list repeats it."""

MAX_MESSAGE_CHARACTERS = 2_000
_MAX_PAGES = 100
_MAX_WAIT_SECONDS = 10.0


class GoogleApiError(ToolError):
    """A refusal by Google's API; the message is Google's own, for the model."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {shortened(message, MAX_MESSAGE_CHARACTERS)}")
        self.http_status = status
        self.reason = reason


class GoogleRestApi:
    """base_url: `https://bigquery.googleapis.com/bigquery/v2`. Without credentials, the machine's own are used.

    Paths are below base_url; a whole URL is one of another endpoint.

    Methods raise GoogleApiError when Google refuses, ToolError when it can't be reached, and MissingExtra.
    """

    def __init__(self, base_url: str, *, read_timeout_seconds: float = 120.0) -> None:
        # The host is Google's, or one that the developer names.
        self._client = HttpClient(allow_private_network_access=True, read_timeout_seconds=read_timeout_seconds)
        self._base_url = base_url.rstrip("/")
        self._machine = GoogleCredentials(ServiceAccount(use_default_credential=True))

    async def get(self, credentials: Credentials | None, path: str, query: Query | None = None) -> JsonObject:
        return await self.call("GET", credentials, path, query)

    async def post(
        self, credentials: Credentials | None, path: str, body: JsonObject, query: Query | None = None
    ) -> JsonObject:
        return await self.call("POST", credentials, path, query, body)

    async def call(
        self,
        method: str,
        credentials: Credentials | None,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        user_agent: str = "",
    ) -> JsonObject:
        """The object in the reply; empty for a reply without content."""
        content = None if body is None else msgspec.json.encode(body)
        reply = await self.send(method, credentials, path, query, content, user_agent=user_agent)
        found = decoded(reply)
        return cast("JsonObject", found) if isinstance(found, dict) else {}

    async def send(
        self,
        method: str,
        credentials: Credentials | None,
        path: str,
        query: Query | None = None,
        content: bytes | None = None,
        *,
        media_type: str = "application/json",
        user_agent: str = "",
    ) -> HttpReply:
        agent = f"greenroom/{__version__} {user_agent}".strip()
        headers: Headers = [
            (b"Authorization", f"Bearer {await self._token(credentials)}".encode()),
            (b"User-Agent", agent.encode()),
        ]
        if content is not None:
            headers.append((b"Content-Type", media_type.encode()))
        quota_project = getattr(credentials, "quota_project_id", None) if credentials else self._machine.quota_project
        if quota_project:
            headers.append((b"x-goog-user-project", str(quota_project).encode()))

        is_whole_url = path.startswith(("https://", "http://"))
        url = path if is_whole_url else f"{self._base_url}/{path}"
        if query:
            url += f"?{_encoded(query)}"
        try:
            reply = await self._client.send(method, url, headers=headers, content=content)
        except ToolError as error:
            raise ToolError(f"Google's API failed: {error.detail}") from error
        if not 200 <= reply.status < 300:
            raise _refusal(reply)
        return reply

    async def pages(
        self, credentials: Credentials | None, path: str, key: str, query: Query | None = None
    ) -> AsyncIterator[JsonObject]:
        """The objects below a key of each page; at most 100 pages."""
        token: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self.get(credentials, path, {**(query or {}), "pageToken": token})
            for item in objects_in(page, key):
                yield item
            token = page.get("nextPageToken")
            if not token:
                return

    async def finish(
        self,
        credentials: Credentials | None,
        operation: JsonObject,
        *,
        base_url: str | None = None,
        timeout_seconds: float = 300.0,
        first_wait_seconds: float = 0.5,
    ) -> JsonObject:
        """The response of a long-running operation, when it is done. Raises ToolError for one that fails or takes
        longer; it then continues at Google.

        base_url: of another endpoint, with the version of its API.
        """
        name = str(operation.get("name") or "")
        path = quote(name) if base_url is None else f"{base_url}/{quote(name)}"
        wait = first_wait_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                while not operation.get("done"):
                    operation = await self.get(credentials, path)
                    if not operation.get("done"):
                        await asyncio.sleep(wait)
                        wait = min(2 * wait, _MAX_WAIT_SECONDS)
        except TimeoutError:
            raise ToolError(f"The operation {name} is not done after {timeout_seconds:g} seconds") from None

        error = object_in(operation, "error")
        if error:
            message = shortened(str(error.get("message") or ""), MAX_MESSAGE_CHARACTERS)
            raise ToolError(f"The operation {name} failed: {message}")
        return object_in(operation, "response")

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _token(self, credentials: Credentials | None) -> str:
        if credentials is None:
            return await self._machine.token()
        return credentials.token or ""


def path_of(*segments: str) -> str:
    """A path of escaped segments. Raises ToolError for empty ones and for dots, which would lead to another path."""
    for segment in segments:
        if segment in ("", ".", ".."):
            raise ToolError(f"{segment!r} is not an id")
    return "/".join(quote(segment, safe="") for segment in segments)


def object_in(node: JsonValue, *keys: str) -> JsonObject:
    """The object at a path of keys, empty when there is none."""
    for key in keys:
        node = cast("JsonObject", node).get(key) if isinstance(node, dict) else None
    return cast("JsonObject", node) if isinstance(node, dict) else {}


def objects_in(node: JsonValue, *keys: str) -> list[JsonObject]:
    """The list of objects at a path of keys, empty when there is none."""
    found = object_in(node, *keys[:-1]).get(keys[-1])
    return cast("list[JsonObject]", found) if isinstance(found, list) else []


def decoded(reply: HttpReply) -> JsonValue:
    """The JSON of a reply; None for one without content. Raises ToolError for anything else."""
    if not reply.body.strip():
        return None
    try:
        return msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise ToolError(f"Google's API answered with {reply.media_type or 'no type'} in place of JSON") from None


def json_or_text(text: str) -> JsonValue:
    """The value of a JSON column; a text that is no JSON stays text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _encoded(query: Query) -> str:
    pairs: list[tuple[str, str]] = []
    for key, value in query.items():
        if isinstance(value, list):
            pairs += [(key, item) for item in value]
        elif isinstance(value, bool):
            pairs.append((key, "true" if value else "false"))
        elif value is not None:
            pairs.append((key, str(value)))
    return urlencode(pairs, quote_via=quote)


def _refusal(reply: HttpReply) -> GoogleApiError:
    details = object_in(reply.json_or_text(), "error")
    reason = str(details.get("status") or reply.reason or "Error")
    return GoogleApiError(reply.status, reason, str(details.get("message") or reply.text()))
