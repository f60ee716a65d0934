"""The table of endpoints made to run."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from functools import cached_property
from http import HTTPStatus

from starlette.routing import BaseRoute, Match, Router, WebSocketRoute, compile_path
from starlette.types import ASGIApp, Lifespan, Receive, Scope, Send

from greenroom.server.call import Rooms
from greenroom.server.default_app import with_place_for_app
from greenroom.server.endpoint import Endpoint, EndpointApp, send_reply
from greenroom.server.error_response import status_reply
from greenroom.server.socket_endpoint import SocketApp


def routed(
    endpoints: Iterable[Endpoint], sockets: Iterable[Endpoint], rooms: Rooms, *, lifespan: Lifespan[Router]
) -> ASGIApp:
    return _Shortcut(
        Router(
            routes=[*_routes(endpoints, rooms), *_sockets(sockets, rooms)],
            default=_not_found,
            redirect_slashes=False,
            lifespan=lifespan,
        )
    )


class _Route(BaseRoute):
    """A path of the table and its application. Its regular expression is compiled for the first path that has as many
    segments: compiling all of them takes a tenth of a server's start."""

    def __init__(self, path: str, app: ASGIApp) -> None:
        self.path = path
        self.app = app
        self._slashes = None if ":path}" in path else path.count("/")

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return compile_path(self.path)[0]

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or (self._slashes is not None and self._slashes != path.count("/")):
            return Match.NONE, {}
        found = self._regex.match(path)
        if found is None:
            return Match.NONE, {}
        return Match.FULL, {"path_params": {**scope.get("path_params", {}), **found.groupdict()}}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


class _Shortcut:
    """Paths without parameters, the busiest among them, are found without trying one route after the other."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._by_path: dict[str, ASGIApp] = {
            route.path: route.app for route in router.routes if isinstance(route, _Route) and "{" not in route.path
        }

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._by_path.get(scope["path"]) if scope["type"] == "http" and not scope.get("root_path") else None
        if app is None:
            if scope["type"] == "http":
                scope = with_place_for_app(scope)
            return self._router(scope, receive, send)
        scope["path_params"] = {}
        return app(scope, receive, send)


def _routes(endpoints: Iterable[Endpoint], rooms: Rooms) -> Iterable[_Route]:
    """One route per path, in the order of the table; its methods share it, so that a wrong method is a 405."""
    by_path: dict[str, dict[str, ASGIApp]] = {}
    by_path_any: dict[str, ASGIApp] = {}
    for endpoint in endpoints:
        app = EndpointApp(endpoint, rooms)
        for path in (endpoint.path, *endpoint.aliases):
            methods = by_path.setdefault(path, {})
            methods[endpoint.method] = app
            if endpoint.takes_any_method:
                by_path_any[path] = app
            if endpoint.method == "GET":
                methods["HEAD"] = app
    return [_Route(path, _ByMethod(methods, by_path_any.get(path))) for path, methods in by_path.items()]


def _sockets(endpoints: Iterable[Endpoint], rooms: Rooms) -> Iterable[WebSocketRoute]:
    for endpoint in endpoints:
        app = SocketApp(endpoint, rooms)
        for path in (endpoint.path, *endpoint.aliases):
            yield WebSocketRoute(path, app)


class _ByMethod:
    def __init__(self, methods: dict[str, ASGIApp], default: ASGIApp | None) -> None:
        self._methods = methods
        self._default = default

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        app = self._methods.get(scope["method"], self._default)
        if app is None:
            allow = {"allow": ", ".join(sorted(self._methods))}
            return send_reply(status_reply(HTTPStatus.METHOD_NOT_ALLOWED, headers=allow), send)
        return app(scope, receive, send)


async def _not_found(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
    else:
        await send_reply(status_reply(HTTPStatus.NOT_FOUND), send)
