"""The app that is meant where a request names none: one rule for paths, bodies and sockets.

Source: ADK's server, which has it named by a variable. Without one, greenroom takes the only app that there is.
"""

from __future__ import annotations

import os

from starlette.types import Scope

from greenroom.apps.loader import AppLoader
from greenroom.errors import AppNotNamed, Forbidden
from greenroom.server.access.identity import Identity
from greenroom.server.settings import ServerSettings

ADK_VARIABLE = "ADK_DEFAULT_APP_NAME"

_NAMES_NO_APP = "greenroom.names_no_app"
_PLACE_OF_THE_NAME = "/apps/-"
"""What stands there has no meaning: the app is known only when it is known who asks."""


def is_path_without_app(path: str) -> bool:
    """Whether a path is one of an app's, with `/apps/{app_name}` left out in front."""
    return path.startswith("/users/") or path == "/app-info"


def with_place_for_app(scope: Scope) -> Scope:
    """The request as it would be if it named an app, where it is one that names none."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root)
    if not is_path_without_app(below):
        return scope
    return {**scope, "path": f"{path[: len(path) - len(below)]}{_PLACE_OF_THE_NAME}{below}", _NAMES_NO_APP: True}


def names_no_app(scope: Scope) -> bool:
    return _NAMES_NO_APP in scope


def named_default(settings: ServerSettings) -> str | None:
    return settings.default_app or os.environ.get(ADK_VARIABLE) or None


def default_app(named: str | None, apps: AppLoader, identity: Identity) -> str:
    """The app that is named, else the only one that the caller reaches.

    Raises AppNotNamed, and Forbidden, without its name, for a default that the caller doesn't reach.
    """
    if named is not None:
        if not identity.reaches(named):
            raise Forbidden("These credentials don't reach the default app")
        return named
    reached = [name for name in apps.list_apps() if identity.reaches(name)]
    if len(reached) != 1:
        raise AppNotNamed(len(reached))
    return reached[0]
