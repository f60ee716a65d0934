"""Vertex AI's REST interface: addresses, access tokens, long-running operations and errors.

Source: https://cloud.google.com/vertex-ai/docs/reference/rest, v1beta1, and https://google.aip.dev/151 (operations).
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import msgspec

from greenroom.errors import Conflict, InvalidRequest, MissingExtra, NotFound, StorageError, ToolError
from greenroom.google_cloud.credentials import GoogleCredentials, GoogleCredentialsRefused
from greenroom.records import wire
from greenroom.records.auth import ServiceAccount
from greenroom.records.base import JsonObject

_ENGINE = re.compile(r"(projects/[^/]+/locations/([^/]+))/reasoningEngines/[^/]+")
_CODES = {3: InvalidRequest, 5: NotFound, 6: Conflict}
"""Of `google.rpc.Code`, which failed operations carry."""

_TIMEOUT_SECONDS = 60.0
_RETRIES = 4
_FIRST_WAIT_SECONDS = 0.25
_MAX_WAIT_SECONDS = 2.0
_OPERATION_SECONDS = 60.0


def resource_of_uri(uri: str) -> str:
    """Returns the part after the scheme: an id, or a full resource name."""
    parts = urlsplit(uri)
    return f"{parts.netloc}{parts.path}".strip("/")


class VertexFailure(Exception):
    """The cause of an error that `VertexClient.call` raises for a failed request.

    status: of HTTP; None if there was no response. code: the status of the API, such as `FAILED_PRECONDITION`.
    """

    def __init__(self, detail: str, *, status: int | None = None, code: str = "") -> None:
        super().__init__(detail)
        self.status = status
        self.code = code


@contextmanager
def tool_errors(operation: str) -> Generator[None]:
    """Raises ToolError instead of the errors of `VertexClient`, for agents whose stores are elsewhere."""
    try:
        yield
    except (InvalidRequest, NotFound, Conflict) as error:
        raise ToolError(f"{operation} failed: {error.detail}") from error
    except StorageError as error:
        raise ToolError(f"{operation} failed: {error.operation}: {error.reason}") from error


class VertexClient:
    """Connects on the first call, and again in another event loop.

    project, location: default to GOOGLE_CLOUD_PROJECT and GOOGLE_CLOUD_LOCATION; a full resource name has its own.
    api_key: of express mode, which has neither. credentials: of `google.auth`; default: the machine's. base_url: of
    another endpoint, without the version.
    """

    def __init__(
        self,
        project: str | None = None,
        location: str | None = None,
        *,
        api_key: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
    ) -> None:
        self._project = project
        self._location = location
        self._api_key = api_key
        self._base_url = base_url
        self._credentials = GoogleCredentials(ServiceAccount(use_default_credential=True), credentials)
        self._http: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def engine(self, name: str) -> str:
        """The resource name of a reasoning engine. name: its id, of digits, or its resource name.

        Raises InvalidRequest.
        """
        if _ENGINE.fullmatch(name):
            return name
        if not name.isdecimal():
            raise InvalidRequest(f"{name!r} is neither the id nor the resource name of a reasoning engine")
        return f"reasoningEngines/{name}" if self._api_key else f"{self.parent()}/reasoningEngines/{name}"

    def parent(self) -> str:
        """`projects/…/locations/…`. Raises InvalidRequest."""
        project = self._project or os.environ.get("GOOGLE_CLOUD_PROJECT")
        location = self._location or os.environ.get("GOOGLE_CLOUD_LOCATION")
        if not project or not location:
            raise InvalidRequest(
                "Vertex AI needs a project and a location: GOOGLE_CLOUD_PROJECT, GOOGLE_CLOUD_LOCATION"
            )
        return f"projects/{project}/locations/{location}"

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        version: str = "v1beta1",
        files: Mapping[str, tuple[Any, ...]] | None = None,
        timeout_seconds: float | None = _TIMEOUT_SECONDS,
        **params: Any,
    ) -> JsonObject:
        """Calls a method of the API.

        path: a resource name, with `:method` for custom methods. body: JSON. files: parts of a multipart body, in
        httpx's format. timeout_seconds: None to wait for a response without limit. params: query parameters; those
        that are None are left out.

        Requests that are refused temporarily (429) are retried; so are reads if the service fails. Raises NotFound,
        Conflict, InvalidRequest, StorageError, all with a `VertexFailure` as their cause, and MissingExtra.
        """
        try:
            import httpx
        except ImportError as error:
            raise MissingExtra("google", "httpx") from error

        params = {name: str(value) for name, value in params.items() if value is not None}
        content = None if body is None else wire.encode(body)
        kind = {"X-Goog-Upload-Protocol": "multipart"} if files else {"Content-Type": "application/json"}
        reply = None

        problem = ""
        wait = _FIRST_WAIT_SECONDS

        access: Mapping[str, str] = {}
        for attempt in range(_RETRIES):
            if attempt:
                await asyncio.sleep(wait)
                wait = min(2 * wait, _MAX_WAIT_SECONDS)

            rejected = None
            if reply is not None and reply.status_code == 401:
                rejected = access.get("Authorization", "").removeprefix("Bearer ")
            access = await self._access(rejected)
            try:
                reply = await self._client().request(
                    method,
                    f"{self._base(path)}{version}/{path}",
                    params=params,
                    content=content,
                    files=files,
                    headers={**kind, **access},
                    timeout=httpx.Timeout(timeout_seconds, connect=_TIMEOUT_SECONDS),
                )
            except httpx.HTTPError as error:
                reply = None
                problem = type(error).__name__

            if reply is not None and 200 <= reply.status_code < 300:
                return _decoded(reply.content)
            if reply is None or reply.status_code >= 500:
                if method != "GET":
                    break
            elif reply.status_code not in (401, 429):
                break

        if reply is None:
            raise StorageError("A request to Vertex AI", problem) from VertexFailure(problem)

        detail, code = _problem(reply.content)
        detail = detail or f"HTTP status {reply.status_code}"
        failure = VertexFailure(detail, status=reply.status_code, code=code)
        if reply.status_code in (400, 404, 409):
            kind_of_error = {400: InvalidRequest, 404: NotFound, 409: Conflict}[reply.status_code]
            raise kind_of_error(f"Vertex AI: {detail}") from failure
        raise StorageError("A request to Vertex AI", detail) from failure

    async def finish(self, operation: JsonObject, *, timeout_seconds: float = _OPERATION_SECONDS) -> JsonObject:
        """The response of a long-running operation, when it is done. Raises what `call` does."""
        wait = _FIRST_WAIT_SECONDS
        try:
            async with asyncio.timeout(timeout_seconds):
                while not operation.get("done"):
                    operation = await self.call("GET", operation["name"])
                    if not operation.get("done"):
                        await asyncio.sleep(wait)
                        wait = min(2 * wait, _MAX_WAIT_SECONDS)
        except TimeoutError:
            reason = f"{operation['name']} has taken {timeout_seconds:g} seconds"
            raise StorageError("An operation of Vertex AI", reason) from None

        if error := operation.get("error"):
            detail = error.get("message", "")
            if (kind := _CODES.get(error.get("code"))) is not None:
                raise kind(f"Vertex AI: {detail}")
            raise StorageError("An operation of Vertex AI", detail)
        return operation.get("response") or {}

    async def pages(self, path: str, field: str, **params: Any) -> AsyncGenerator[JsonObject]:
        """The items of a listing."""
        while True:
            page = await self.call("GET", path, **params)
            for item in page.get(field) or ():
                yield item
            params["pageToken"] = page.get("nextPageToken")
            if not params["pageToken"]:
                return

    async def close(self) -> None:
        if self._http is not None and self._loop is asyncio.get_running_loop():
            await self._http.aclose()
        self._http = None

    def _client(self) -> Any:
        import httpx

        loop = asyncio.get_running_loop()
        if self._http is None or self._loop is not loop:
            self._http = httpx.AsyncClient(timeout=_TIMEOUT_SECONDS)
            self._loop = loop
        return self._http

    def _base(self, path: str) -> str:
        if self._base_url is not None:
            return f"{self._base_url.rstrip('/')}/"
        named = re.search("projects/[^/]+/locations/([^/]+)/", path)
        return f"https://{named[1]}-aiplatform.googleapis.com/" if named else "https://aiplatform.googleapis.com/"

    async def _access(self, rejected: str | None) -> Mapping[str, str]:
        if self._api_key:
            return {"x-goog-api-key": self._api_key}
        try:
            token = await self._credentials.token(rejected=rejected)
        except GoogleCredentialsRefused as error:
            raise StorageError("A request to Vertex AI", str(error)) from error
        return {"Authorization": f"Bearer {token}"}


def _decoded(content: bytes) -> JsonObject:
    try:
        return msgspec.json.decode(content or b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise StorageError("A request to Vertex AI", f"its answer can't be read: {error}") from error


def _problem(content: bytes) -> tuple[str, str]:
    """The message and the status in the body of a failed request."""
    try:
        error = _decoded(content)["error"]
        return error["message"], error.get("status", "")
    except (StorageError, KeyError, TypeError):
        return content[:300].decode(errors="replace"), ""
