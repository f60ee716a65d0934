"""The `compose.yaml` that `greenroom deploy compose` writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_ENVIRONMENT = {"POSTGRES_PASSWORD": "secret1", "S3_PASSWORD": "secret2"}


def read_compose(folder: Path, **environment: str) -> Any:
    """The file with its variables replaced, as Docker Compose does. Raises LookupError for one that is required."""
    content = yaml.safe_load((folder / "compose.yaml").read_text())
    return _interpolated(content, {**_ENVIRONMENT, **environment})


def _interpolated(value: Any, environment: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _interpolated(one, environment) for key, one in value.items()}
    if isinstance(value, list):
        return [_interpolated(one, environment) for one in value]
    if not isinstance(value, str):
        return value

    def replacement(found: re.Match[str]) -> str:
        name, operator, rest = found.groups()
        given = environment.get(name, "")
        if not given and operator == ":?":
            raise LookupError(f"{name}: {rest}")
        return given or rest

    value = value.replace("$$", "\0")
    innermost = re.compile(r"\$\{([A-Z0-9_]+)(:[-?])([^{}]*)\}")
    while innermost.search(value):
        value = innermost.sub(replacement, value)
    assert "${" not in value
    return value.replace("\0", "$")
