"""Skills: their description and files, and loading them from folders and zip archives.

Source of the fields and the layout: the Agent Skills format.
"""

from __future__ import annotations

import asyncio
import io
import logging
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, cast

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject
from greenroom.tools.openapi.document import read_yaml

MAX_SKILL_BYTES = 32 * 1024 * 1024
MAX_SKILL_FILES = 2_000

_log = logging.getLogger("greenroom.tools")

_LEFT_OUT = "the skill in %s is left out: %s"

_KEBAB_OR_SNAKE = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*")


class InvalidSkill(AgentConfigError):
    def __init__(self, skill: str, reason: str) -> None:
        super().__init__(f"Skill {skill!r} can't be used: {reason}")
        self.skill = skill
        self.reason = reason


class ForbiddenPath(ValueError):
    """A path outside of a skill, or of a hidden file."""


@dataclass(frozen=True, kw_only=True)
class Frontmatter:
    """The header of a SKILL.md. `name`: 64 characters at most; `description`: 1024."""

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
        """The header as SKILL.md spells it, without missing fields."""
        plain: JsonObject = {
            "name": self.name,
            "description": self.description,
            "license": self.license,
            "compatibility": self.compatibility,
            "allowed-tools": self.allowed_tools,
            "metadata": self.metadata or None,
        }
        return {key: value for key, value in plain.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Script:
    src: str

    def __str__(self) -> str:
        return self.src


@dataclass(frozen=True, kw_only=True)
class Resources:
    """A skill's files by name, one map per folder."""

    references: Mapping[str, str | bytes] = field(default_factory=dict[str, str | bytes])
    assets: Mapping[str, str | bytes] = field(default_factory=dict[str, str | bytes])
    scripts: Mapping[str, Script] = field(default_factory=dict[str, Script])

    def by_path(self) -> dict[str, str | bytes]:
        folders = {"references": self.references, "assets": self.assets}
        files = {f"{folder}/{name}": content for folder, named in folders.items() for name, content in named.items()}
        return files | {f"scripts/{name}": script.src for name, script in self.scripts.items()}

    def get_reference(self, reference_id: str) -> str | bytes | None:
        return self.references.get(reference_id)

    def get_asset(self, asset_id: str) -> str | bytes | None:
        return self.assets.get(asset_id)

    def get_script(self, script_id: str) -> Script | None:
        return self.scripts.get(script_id)

    def list_references(self) -> list[str]:
        return list(self.references)

    def list_assets(self) -> list[str]:
        return list(self.assets)

    def list_scripts(self) -> list[str]:
        return list(self.scripts)


class Skill:
    """A skill: instructions with their resources and scripts.

    resources: files by path, such as `references/rules.md`, for a skill without a folder.
    """

    def __init__(
        self,
        *,
        frontmatter: Frontmatter,
        instructions: str,
        resources: Mapping[str, str | bytes] | Resources | None = None,
        folder: Path | None = None,
    ) -> None:
        self.frontmatter = frontmatter
        self.instructions = instructions
        self._folder = folder

        if isinstance(resources, Resources):
            files = resources.by_path()
        else:
            files = resources or {}

        self._resources = {
            str(_inner_path(path)): content.encode() if isinstance(content, str) else content
            for path, content in files.items()
        }

    @property
    def name(self) -> str:
        return self.frontmatter.name

    @property
    def description(self) -> str:
        return self.frontmatter.description

    @property
    def resources(self) -> Resources:
        """The files in the folders `references`, `assets` and `scripts`. Blocks. Raises
        OverflowError as `files`.
        """
        folders: dict[str, dict[str, str | bytes]] = {"references": {}, "assets": {}, "scripts": {}}
        for path, content in self.files().items():
            folder, _, name = path.partition("/")
            if name and folder in folders:
                folders[folder][name] = _as_text(content)

        scripts = {
            name: Script(src=content) for name, content in folders["scripts"].items() if isinstance(content, str)
        }
        return Resources(
            references=folders["references"],
            assets=folders["assets"],
            scripts=scripts,
        )

    def read(self, path: str, *, max_bytes: int) -> bytes | None:
        """A file, None when there is none. Blocks. Raises ForbiddenPath, and OverflowError for a
        larger file.
        """
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
        """Returns all files of the skill, for a script. Blocks. Raises OverflowError above the limits."""
        if self._folder is None:
            return dict(self._resources)

        contents: dict[str, bytes] = {}
        left = max_bytes
        for file in _visible_files(self._folder):
            path = file.relative_to(self._folder).as_posix()
            try:
                content = self.read(path, max_bytes=left)
            except ForbiddenPath:  # a link out of the skill
                continue

            if content is None:
                continue

            contents[path] = content
            left -= len(content)

            if len(contents) > MAX_SKILL_FILES:
                raise OverflowError(f"more than {MAX_SKILL_FILES} files")

        return contents


def _visible_files(folder: Path) -> Iterator[Path]:
    """Returns the files in the folder and below it, by name, without hidden files and files in linked folders."""
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(parent, name)


def _as_text(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _inner_path(path: str) -> PurePosixPath:
    inner = PurePosixPath(path)
    is_plain = "\\" not in path and "\0" not in path and not inner.is_absolute()
    if not is_plain or not inner.parts or _is_hidden(inner):
        raise ForbiddenPath(path)
    return inner


def _is_hidden(path: PurePath) -> bool:
    """True of `..` too."""
    return any(part.startswith(".") for part in path.parts)


def _confined(folder: Path, inner: PurePosixPath) -> Path:
    """Resolves links first, so that none leads out of the skill."""
    root = folder.resolve()
    file = (root / inner).resolve()
    if not file.is_relative_to(root) or _is_hidden(file.relative_to(root)):
        raise ForbiddenPath(str(inner))
    return file


MAX_ZIP_ENTRIES = 2_000
MAX_INSTRUCTIONS_BYTES = 1024 * 1024

_KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT_MATTER = re.compile(
    r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)",
    re.DOTALL | re.MULTILINE,
)


def load_skill_from_dir(folder: str | Path, *, allow_snake_case: bool = False) -> Skill:
    """Loads a skill. Raises InvalidSkill, with the reason."""
    folder = Path(folder)
    file = _skill_file(folder)
    if file is None:
        raise InvalidSkill(folder.name, "it has no SKILL.md")
    if file.stat().st_size > MAX_INSTRUCTIONS_BYTES:
        raise InvalidSkill(folder.name, f"its {file.name} is larger than {MAX_INSTRUCTIONS_BYTES} bytes")

    frontmatter, instructions = _parse(folder.name, file.read_bytes())
    _check_name(frontmatter, folder.resolve().name, allow_snake_case)

    return Skill(frontmatter=frontmatter, instructions=instructions, folder=folder)


def load_skills_from_dir(folder: str | Path, *, allow_snake_case: bool = False) -> list[Skill]:
    """The skills in the folders of a folder, by name.

    Folders without a SKILL.md are no skills. A skill that is not valid is left out, with a warning.
    """
    root = Path(folder)
    if not root.is_dir():
        raise AgentConfigError(f"There is no folder of skills at {str(root)!r}")

    skills: list[Skill] = []
    for inner in sorted(root.iterdir()):
        if not inner.is_dir() or _skill_file(inner) is None:
            continue
        try:
            skills.append(load_skill_from_dir(inner, allow_snake_case=allow_snake_case))
        except (InvalidSkill, OSError) as error:
            _log.warning(_LEFT_OUT, inner, error)

    return skills


async def load_skill_from_dir_async(folder: str | Path) -> Skill:
    return await asyncio.to_thread(load_skill_from_dir, folder)


async def load_skills_from_dir_async(folder: str | Path) -> list[Skill]:
    return await asyncio.to_thread(load_skills_from_dir, folder)


def list_skills_in_dir(
    folder: str | Path, on_error: Callable[[str, Exception], None] | None = None
) -> dict[str, Frontmatter]:
    """The headers of the skills in the folders of a folder, by name. Invalid ones are left out:
    on_error is called with each and its error, without it a warning is logged.
    """
    skills: dict[str, Frontmatter] = {}
    root = Path(folder)
    if not root.is_dir():
        _log.warning("there is no folder of skills at %s", root)

    for inner in sorted(root.iterdir()) if root.is_dir() else ():
        if inner.is_dir():
            try:
                skills[inner.name] = load_skill_from_dir(inner).frontmatter
            except (InvalidSkill, OSError) as error:
                if on_error is not None:
                    on_error(inner.name, error)
                else:
                    _log.warning(_LEFT_OUT, inner, error)

    return skills


async def list_skills_in_dir_async(
    folder: str | Path, on_error: Callable[[str, Exception], None] | None = None
) -> dict[str, Frontmatter]:
    return await asyncio.to_thread(list_skills_in_dir, folder, on_error)


def load_skill_from_zip(archive: bytes, *, allow_snake_case: bool = False) -> Skill:
    """A skill packed with or without its folder, kept in memory. Raises InvalidSkill."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            files = _unpacked(opened)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as error:
        raise InvalidSkill("(zip)", f"the archive can't be read: {error}") from None

    at = next((path for path in files if path.name in ("SKILL.md", "skill.md") and len(path.parts) <= 2), None)
    if at is None:
        raise InvalidSkill("(zip)", "the archive has no SKILL.md")

    frontmatter, instructions = _parse(str(at), files[at])
    folder = at.parent
    if folder.name:
        _check_name(frontmatter, folder.name, allow_snake_case)

    inner = {path.relative_to(folder): content for path, content in files.items() if path.is_relative_to(folder)}
    resources = {str(path): content for path, content in inner.items() if not _is_hidden(path)}

    return Skill(frontmatter=frontmatter, instructions=instructions, resources=resources)


def _unpacked(archive: zipfile.ZipFile) -> dict[PurePosixPath, bytes]:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(archive.infolist()) > MAX_ZIP_ENTRIES:
        raise InvalidSkill("(zip)", f"the archive has more than {MAX_ZIP_ENTRIES} entries")

    left = MAX_SKILL_BYTES
    contents: dict[PurePosixPath, bytes] = {}
    for entry in entries:
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or ":" in entry.filename:
            raise InvalidSkill("(zip)", f"the archive has an entry {entry.filename!r} that leads out of it")

        # The size in the archive's index may be wrong, so count the unpacked bytes.
        with archive.open(entry) as opened:
            content = opened.read(left + 1)

        left -= len(content)

        if left < 0:
            raise InvalidSkill("(zip)", f"the archive holds more than {MAX_SKILL_BYTES} bytes")

        contents[path] = content

    return contents


def _skill_file(folder: Path) -> Path | None:
    return next((folder / name for name in ("SKILL.md", "skill.md") if (folder / name).is_file()), None)


def _parse(location: str, content: bytes) -> tuple[Frontmatter, str]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InvalidSkill(location, "its SKILL.md is not UTF-8") from None

    match = _FRONT_MATTER.match(text)
    if match is None:
        raise InvalidSkill(location, "its SKILL.md must begin with front matter between two lines of ---")

    try:
        front_matter = read_yaml(match.group(1))
    except AgentConfigError as error:
        raise InvalidSkill(location, error.detail) from None

    if not isinstance(front_matter, dict):
        raise InvalidSkill(location, "its front matter is not a map")

    plain = cast("JsonObject", front_matter)
    tools: Any = plain.get("allowed-tools", plain.get("allowed_tools"))

    metadata: Any = plain.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidSkill(location, "its metadata is not a map")

    frontmatter = Frontmatter(
        name=str(plain.get("name") or ""),
        description=str(plain.get("description") or "").strip(),
        license=_text(plain.get("license")),
        compatibility=_text(plain.get("compatibility")),
        allowed_tools=" ".join(map(str, cast("list[Any]", tools))) if isinstance(tools, list) else _text(tools),
        metadata=cast("JsonObject", metadata),
    )

    return frontmatter, text[match.end() :].strip()


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _check_name(frontmatter: Frontmatter, folder: str, allow_snake_case: bool) -> None:
    if frontmatter.name != folder:
        raise InvalidSkill(frontmatter.name, f"its folder is called {folder!r}; both must be the same")
    if not allow_snake_case and not _KEBAB.fullmatch(frontmatter.name):
        raise InvalidSkill(frontmatter.name, "its name must be small letters, digits and hyphens")
