"""How classes and functions that a file names are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.apps.yaml_config.document import Node
from greenroom.apps.yaml_config.errors import ConfigFileError
from greenroom.errors import GreenroomError


class Args(dict[str, Any]):
    """A map whose entries can be read as attributes too, as ADK's hooks and tool factories do."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def call_hook(hook: Callable[..., Any], args: Mapping[str, Any], path: Path) -> Any:
    """`from_config(config, config_abs_path)`, or one without the second parameter."""
    positional = [
        parameter
        for parameter in inspect.signature(hook).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL)
    ]
    takes_path = len(positional) > 1 or any(p.kind is p.VAR_POSITIONAL for p in positional)
    return hook(Args(args), str(path)) if takes_path else hook(Args(args))


def made(node: Node, what: str, make: Callable[[], Any]) -> Any:
    """What `make` makes; what it raises is told as the fault of the node."""
    try:
        return make()
    except ConfigFileError:
        raise
    except (TypeError, ValueError, OSError, GreenroomError) as error:
        text = error.detail if isinstance(error, GreenroomError) else f"{type(error).__name__}: {error}"
        raise node.error(f"{what} can't be made: {text}") from error
