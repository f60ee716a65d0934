"""An API that remembers what it was asked, on a real port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from greenroom.records.auth import AuthCredential
from greenroom.records.base import JsonObject
from greenroom.tools.openapi.rest_api_tool import RestApiTool
from greenroom.tools.openapi.toolset import OpenAPIToolset
from tests.server.serving import serving
from tests.tools.one_call import Calls, call_once


@dataclass
class Seen:
    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Api:
    """answers: the reply to each request, in turn; the last one is given again. made: the newest call in a run."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    answers: list[Callable[[Seen], Response] | Response] = field(default_factory=list)
    toolsets: list[OpenAPIToolset] = field(default_factory=list)
    made: Calls | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            for _ in range(2):
                await send({"type": f"{(await receive())['type']}.complete"})
            return
        request = Request(scope, receive)
        seen = Seen(
            method=request.method,
            path=cast("bytes", scope["raw_path"]).decode(),
            query=cast("bytes", scope["query_string"]).decode(),
            headers=dict(request.headers),
            body=await request.body(),
        )
        self.seen.append(seen)
        answer = (
            (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]) if self.answers else JSONResponse({})
        )
        await (answer if isinstance(answer, Response) else answer(seen))(scope, receive, send)

    @property
    def last(self) -> Seen:
        return self.seen[-1]

    def document(self, paths: JsonObject, **more: Any) -> JsonObject:
        return {"openapi": "3.0.3", "info": {}, "servers": [{"url": self.url}], "paths": paths, **more}

    def toolset(self, paths: JsonObject, *, components: JsonObject | None = None, **options: Any) -> OpenAPIToolset:
        document = self.document(paths, components=components or {})
        toolset = OpenAPIToolset(spec_dict=document, allow_private_network_access=True, **options)
        self.toolsets.append(toolset)
        return toolset

    def tool(self, operation: JsonObject, *, method: str = "get", path: str = "/it", **options: Any) -> RestApiTool:
        """The tool of an API that can do one thing."""
        toolset = self.toolset({path: {method: {"operationId": "do_it", **operation}}}, **options)
        tool = toolset.get_tool("do_it")
        assert tool is not None
        return tool

    async def call(
        self,
        operation: JsonObject,
        args: JsonObject,
        *,
        granted: Mapping[str, AuthCredential] | None = None,
        **options: Any,
    ) -> JsonObject:
        """The response to a call of such a tool in a run. granted: what the user did before, by its key."""
        self.made = await call_once(self.tool(operation, **options), "do_it", args, granted=granted)
        return self.made.response

    @property
    def asked_for(self) -> JsonObject:
        """The credentials that the newest call asked the user for."""
        assert self.made is not None
        return self.made.actions.requested_auth_configs


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    app = Api()
    async with serving(cast("Any", app)) as server:
        app.url = server.url
        yield app
        for toolset in app.toolsets:
            await toolset.close()
