"""Routes requests to the endpoints of the table by path and method."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Iterable
from functools import cached_property
from http import HTTPStatus

from starlette.types import ASGIApp, Receive, Scope, Send

from greenroom.server.addresses import address_of
from greenroom.server.endpoint import Endpoint, EndpointApp, send_reply
from greenroom.server.replies import redirect_reply, status_reply
from greenroom.server.request_context import is_path_without_app
from greenroom.server.server_state import ServerState
from greenroom.server.websocket_endpoint import SocketApp

_WEBSOCKET = "WEBSOCKET"


class Router:
    """Looks up paths without parameters, the busiest ones included, in a dict; matches others in the table's order."""

    def __init__(self, endpoints: Iterable[Endpoint], server: ServerState) -> None:
        routes: dict[str, _Route] = {}
        for endpoint in endpoints:
            app = (SocketApp if endpoint.method == _WEBSOCKET else EndpointApp)(endpoint, server)
            for path in (endpoint.path, *endpoint.aliases):
                route = routes.setdefault(path, _Route(path))
                route.apps[endpoint.method] = app
                if endpoint.method == "GET":
                    route.apps["HEAD"] = app
                if endpoint.takes_any_method:
                    route.default = app

        self._static = {path: route for path, route in routes.items() if "{" not in path}
        patterns = [route for path, route in routes.items() if "{" in path]
        self._patterns: dict[int | None, list[_Route]] = {}
        for slashes in {None, *(route.slashes for route in patterns)}:
            self._patterns[slashes] = [route for route in patterns if route.slashes in (None, slashes)]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Dispatches a scope whose `path` is one of this server's own; the part before it is in `root_path`."""
        path: str = scope["path"]
        route, parameters = self._find(path)
        method = scope.get("method", _WEBSOCKET)
        app = route.apps.get(method, route.default) if route is not None else None
        if app is not None:
            scope["path_params"] = parameters
            return app(scope, receive, send)
        if method == _WEBSOCKET:
            return send({"type": "websocket.close", "code": 1000})

        allowed = sorted({*route.apps} - {_WEBSOCKET}) if route is not None else []
        if not allowed:
            bare_path = path.rstrip("/")
            if bare_path != path and self.knows(bare_path):
                location = address_of(scope).path(bare_path)
                if query := scope["query_string"]:
                    location = f"{location}?{query.decode('latin-1')}"
                return send_reply(redirect_reply(location), send)
            return send_reply(status_reply(HTTPStatus.NOT_FOUND), send)

        return send_reply(status_reply(HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": ", ".join(allowed)}), send)

    def knows(self, path: str) -> bool:
        """True if an endpoint has this path, with any method."""
        route, _ = self._find(path)
        return route is not None

    def _find(self, path: str) -> tuple[_Route | None, dict[str, str]]:
        if is_path_without_app(path):
            route, parameters = self._match("/apps/-" + path)
            parameters["app_name"] = ""  # the endpoint finds the default app, after authentication
            return route, parameters
        return self._match(path)

    def _match(self, path: str) -> tuple[_Route | None, dict[str, str]]:
        if path in self._static:
            return self._static[path], {}
        for route in self._patterns.get(path.count("/"), self._patterns[None]):
            if found := route.regex.fullmatch(path):
                return route, found.groupdict()
        return None, {}


class _Route:
    """The applications of one path, by method. slashes: None for a path of any length. The regular
    expression is compiled on the first request with the same number of slashes: compiling all of
    them takes a tenth of the start-up time."""

    def __init__(self, path: str) -> None:
        self.apps: dict[str, ASGIApp] = {}
        self.default: ASGIApp | None = None
        self._path = path
        self.slashes = None if ":path}" in path else path.count("/")

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(
            re.sub(r"{(\w+)(:path)?}", lambda name: f"(?P<{name[1]}>{'.*' if name[2] else '[^/]+'})", self._path)
        )
