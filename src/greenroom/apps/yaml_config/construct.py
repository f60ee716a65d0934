"""Calls code that a configuration file names; its exceptions become errors with a location."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.apps.yaml_config.document import ConfigFileError, ConfigNode
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
    try:
        inspect.signature(hook).bind(args, path)
    except TypeError:
        return hook(Args(args))
    return hook(Args(args), str(path))


def construct(node: ConfigNode, what: str, make: Callable[[], Any]) -> Any:
    """Calls `make`; its exceptions become errors of the node."""
    try:
        return make()
    except ConfigFileError:
        raise
    except (TypeError, ValueError, OSError, GreenroomError) as error:
        if isinstance(error, GreenroomError):
            text = error.detail
        else:
            text = f"{type(error).__name__}: {error}"
        raise node.error(f"{what} can't be made: {text}") from error
