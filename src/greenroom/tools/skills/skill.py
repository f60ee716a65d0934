"""A skill: what is known of it, its instructions, and the files that it can show.

Source of the fields and folders: the Agent Skills format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject

MAX_SKILL_BYTES = 32 * 1024 * 1024
FOLDERS = ("references", "assets", "scripts")
"""All that a skill can show."""

_KEBAB_OR_SNAKE = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")


class InvalidSkill(AgentConfigError):
    def __init__(self, skill: str, reason: str) -> None:
        super().__init__(f"Skill {skill!r} can't be used: {reason}")
        self.skill, self.reason = skill, reason


class ForbiddenPath(ValueError):
    """A path that leads out of a skill, or to a part of it that is not for showing."""


@dataclass(frozen=True, kw_only=True)
class Frontmatter:
    """What is known of a skill before it is loaded. `name`: 64 characters at most; `description`: 1024."""

    name: str
    description: str
    license: str | None = None
    compatibility: str | None = None
    allowed_tools: str | None = None
    metadata: JsonObject = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 64 or not _KEBAB_OR_SNAKE.fullmatch(self.name):
            raise InvalidSkill(self.name, "its name must be up to 64 small letters, digits and hyphens")
        if not 1 <= len(self.description) <= 1024:
            raise InvalidSkill(self.name, "its description must have 1 to 1024 characters")
        if self.compatibility is not None and len(self.compatibility) > 500:
            raise InvalidSkill(self.name, "its compatibility must have at most 500 characters")
        extra: Any = self.additional_tools
        if not isinstance(extra, list) or not all(isinstance(name, str) for name in cast("list[Any]", extra)):
            raise InvalidSkill(self.name, "adk_additional_tools must be a list of names")

    @property
    def additional_tools(self) -> list[str]:
        return self.metadata.get("adk_additional_tools") or []

    @property
    def injects_state(self) -> bool:
        return self.metadata.get("adk_inject_state") is True

    def to_plain(self) -> JsonObject:
        """As SKILL.md spells it, without what it leaves out."""
        plain: JsonObject = {
            "name": self.name,
            "description": self.description,
            "license": self.license,
            "compatibility": self.compatibility,
            "allowed-tools": self.allowed_tools,
            "metadata": self.metadata or None,
        }
        return {key: value for key, value in plain.items() if value is not None}


class Skill:
    """resources: files by path, such as `references/rules.md`; they are in place of a folder's."""

    def __init__(
        self,
        *,
        frontmatter: Frontmatter,
        instructions: str,
        resources: Mapping[str, str | bytes] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.frontmatter = frontmatter
        self.instructions = instructions
        self._folder = folder
        self._resources = {
            str(_inner_path(path)): content.encode() if isinstance(content, str) else content
            for path, content in (resources or {}).items()
        }

    @property
    def name(self) -> str:
        return self.frontmatter.name

    @property
    def description(self) -> str:
        return self.frontmatter.description

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """A file, None when there is none. Blocks. Raises ForbiddenPath, and OverflowError for a larger file."""
        inner = _inner_path(path)
        if self._folder is None:
            content = self._resources.get(str(inner))
            if content is not None and len(content) > max_bytes:
                raise OverflowError(path)
            return content
        file = _confined(self._folder, inner)
        if not file.is_file():
            return None
        with file.open("rb") as opened:
            content = opened.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise OverflowError(path)
        return content

    def files(self, *, max_bytes: int = MAX_SKILL_BYTES) -> dict[str, bytes]:
        """All it can show, for a script to run among. Blocks. Raises OverflowError when that is too much."""
        if self._folder is None:
            return dict(self._resources)
        found: dict[str, bytes] = {}
        left = max_bytes
        for folder in FOLDERS:
            for file in sorted((self._folder / folder).rglob("*")):
                path = file.relative_to(self._folder).as_posix()
                try:
                    content = self.read(path, max_bytes=left)
                except ForbiddenPath:  # a link out of the skill
                    continue
                if content is not None:
                    found[path] = content
                    left -= len(content)
        return found


def _inner_path(path: str) -> PurePosixPath:
    inner = PurePosixPath(path)
    is_plain = "\\" not in path and "\0" not in path and ".." not in inner.parts and not inner.is_absolute()
    if not is_plain or len(inner.parts) < 2 or inner.parts[0] not in FOLDERS:
        raise ForbiddenPath(path)
    return inner


def _confined(folder: Path, inner: PurePosixPath) -> Path:
    """Links are followed first, so that none leads out."""
    root = folder.resolve()
    file = (root / inner).resolve()
    if not any(file.is_relative_to(root / allowed) for allowed in FOLDERS):
        raise ForbiddenPath(str(inner))
    return file
