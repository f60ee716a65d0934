"""Loads skills: from folders with a SKILL.md, and from such folders packed as zip archives.

Source of the layout: the Agent Skills format.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any, cast

from greenroom.errors import AgentConfigError
from greenroom.records.base import JsonObject
from greenroom.tools.openapi.document import read_yaml
from greenroom.tools.skills.skill import FOLDERS, MAX_SKILL_BYTES, Frontmatter, InvalidSkill, Skill

MAX_ZIP_ENTRIES = 2_000
MAX_INSTRUCTIONS_BYTES = 1024 * 1024

_KEBAB = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


def load_skill_from_dir(folder: str | Path, *, allow_snake_case: bool = False) -> Skill:
    """Raises InvalidSkill, which says what is wrong with the folder."""
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
    """The skills in the folders of a folder, by name; folders without a SKILL.md are no skills."""
    root = Path(folder)
    if not root.is_dir():
        raise AgentConfigError(f"There is no folder of skills at {str(root)!r}")
    return [
        load_skill_from_dir(inner, allow_snake_case=allow_snake_case)
        for inner in sorted(root.iterdir())
        if inner.is_dir() and _skill_file(inner) is not None
    ]


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
    resources = {str(path): content for path, content in inner.items() if path.parts[0] in FOLDERS}
    return Skill(frontmatter=frontmatter, instructions=instructions, resources=resources)


def _unpacked(archive: zipfile.ZipFile) -> dict[PurePosixPath, bytes]:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(archive.infolist()) > MAX_ZIP_ENTRIES:
        raise InvalidSkill("(zip)", f"the archive has more than {MAX_ZIP_ENTRIES} entries")
    left = MAX_SKILL_BYTES
    found: dict[PurePosixPath, bytes] = {}
    for entry in entries:
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in entry.filename or ":" in entry.filename:
            raise InvalidSkill("(zip)", f"the archive has an entry {entry.filename!r} that leads out of it")
        # the size in the archive's index may be a lie, so count what really comes out
        with archive.open(entry) as opened:
            content = opened.read(left + 1)
        left -= len(content)
        if left < 0:
            raise InvalidSkill("(zip)", f"the archive holds more than {MAX_SKILL_BYTES} bytes")
        found[path] = content
    return found


def _skill_file(folder: Path) -> Path | None:
    return next((folder / name for name in ("SKILL.md", "skill.md") if (folder / name).is_file()), None)


def _parse(where: str, content: bytes) -> tuple[Frontmatter, str]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise InvalidSkill(where, "its SKILL.md is not UTF-8") from None
    match = _FRONT_MATTER.match(text)
    if match is None:
        raise InvalidSkill(where, "its SKILL.md must begin with front matter between two lines of ---")
    try:
        given = read_yaml(match.group(1))
    except AgentConfigError as error:
        raise InvalidSkill(where, error.detail) from None
    if not isinstance(given, dict):
        raise InvalidSkill(where, "its front matter is not a map")
    plain = cast("JsonObject", given)
    tools: Any = plain.get("allowed-tools", plain.get("allowed_tools"))
    metadata: Any = plain.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InvalidSkill(where, "its metadata is not a map")
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
