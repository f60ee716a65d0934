"""Loads settings from flags, environment variables and a file, in this order of precedence."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import msgspec

from greenroom.errors import ConfigurationError
from greenroom.server.setting_table import PREFIX, Setting, default_of, setting_rows
from greenroom.server.settings import OTHER_VARIABLES, Secret

FILE_NAME = "greenroom.toml"

_FROM_FILE = "_FILE"
_PASSWORD = re.compile(r"(?<=://)([^/@\s:]*):[^/@\s]*@")

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class Value:
    """A setting's value and a description of its source."""

    setting: Setting
    value: Any
    origin: str

    @property
    def shown(self) -> str:
        """The value for display, with secrets and passwords in URLs masked."""
        if isinstance(self.value, Secret):
            return "********"
        if self.value is None:
            return (self.setting.default_words or "none").replace("`", "")
        value: object = self.value
        text = json.dumps(value) if isinstance(value, (tuple, list, dict, bool)) else str(value)
        return without_password(text)


@dataclass(frozen=True, kw_only=True)
class Configuration(Generic[S]):
    """warnings: about variables with our prefix that are no settings."""

    settings: S
    values: list[Value]
    warnings: list[str]
    file: Path | None


def find_file(*folders: Path) -> Path | None:
    """The first `greenroom.toml` in these folders."""
    return next((folder / FILE_NAME for folder in folders if (folder / FILE_NAME).is_file()), None)


def load_configuration(
    kind: type[S],
    *,
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    file: Path | None = None,
) -> Configuration[S]:
    """Loads the settings. kind: a dataclass of settings. flags: the given flags, by the setting's dotted key.

    Raises one ConfigurationError that lists all faults.
    """
    rows = list(setting_rows(kind))
    environ = environ or {}
    faults: list[str] = []
    in_file = _read_file(file, rows, faults) if file is not None else {}
    values: list[Value] = []
    for setting in rows:
        found = (
            _from_flag(setting, flags or {})
            or _from_environment(setting, environ, faults)
            or in_file.get(setting.dotted)
            or (setting.default, "default", None)
        )
        value, origin, strict = found
        if strict is not None:
            try:
                value = setting.convert(value, strict=strict)
            except msgspec.ValidationError:
                shown = "the given value" if setting.is_secret else without_password(repr(value))
                faults.append(f"{origin}: {setting.dotted} must be {setting.kind}, not {shown}")
        values.append(Value(setting=setting, value=value, origin=origin))
    if faults:
        raise ConfigurationError(faults)
    return Configuration(
        settings=_build(kind, values), values=values, warnings=_unknown_variables(environ, rows), file=file
    )


def without_password(text: str) -> str:
    return _PASSWORD.sub(r"\1:********@", text)


_Found = tuple[Any, str, bool | None]
"""Value, origin, and whether to validate it strictly (True), as text (False) or not at all (None)."""


def _from_flag(setting: Setting, flags: Mapping[str, Any]) -> _Found | None:
    return (flags[setting.dotted], f"flag {setting.flag}", True) if setting.dotted in flags else None


def _from_environment(setting: Setting, environ: Mapping[str, str], faults: list[str]) -> _Found | None:
    """Reads the setting's variable; an empty one counts as unset. `NAME_FILE` names a file that holds the value."""
    name = setting.variable
    text, origin = environ.get(name, ""), f"variable {name}"
    if not text and (path := environ.get(name + _FROM_FILE)):
        origin = f"variable {name}{_FROM_FILE}"
        try:
            text = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"{origin}: {path} can't be read ({error})")
    if not text:
        return None
    if setting.takes_table or (setting.takes_list and text.lstrip().startswith("[")):
        try:
            return json.loads(text), origin, True
        except ValueError:
            return text, origin, True
    if setting.takes_list:
        return [part.strip() for part in text.split(",") if part.strip()], origin, False
    return text, origin, False


def _read_file(file: Path, rows: list[Setting], faults: list[str]) -> dict[str, _Found]:
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{file} can't be read: {error}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{file} is not valid TOML: {error}"]) from error
    known = {setting.key: setting for setting in rows}
    found: dict[str, _Found] = {}
    for key, value in _leaves(document, known):
        location = f"{file}:{_line_of(text, key)}"
        if key in known:
            found[".".join(key)] = value, location, True
        else:
            hint = _hint(".".join(key), [setting.dotted for setting in rows])
            faults.append(f"{location}: there is no setting {'.'.join(key)}.{hint}")
    return found


def _leaves(
    table: Mapping[str, Any], known: Mapping[tuple[str, ...], Setting], above: tuple[str, ...] = ()
) -> Iterable[tuple[tuple[str, ...], Any]]:
    for name, value in table.items():
        key = (*above, name)
        is_table_of_settings = any(one[: len(key)] == key and one != key for one in known)
        if isinstance(value, dict) and is_table_of_settings:
            yield from _leaves(cast("dict[str, Any]", value), known, key)
        else:
            yield key, value


def _line_of(text: str, key: tuple[str, ...]) -> int:
    """The line on which a key's value begins: the one after the longest prefix of the file that lacks the key."""
    lines = text.splitlines()
    begins = 1
    for count in range(len(lines) + 1):
        try:
            document: Any = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        for name in key:
            document = cast("dict[str, Any]", document).get(name) if isinstance(document, dict) else None
        if document is not None:
            break
        begins = count + 1
    return begins


def _unknown_variables(environ: Mapping[str, str], rows: list[Setting]) -> list[str]:
    known = {*OTHER_VARIABLES, *(setting.variable for setting in rows)}
    return [
        f"{name} is not a setting of greenroom.{_hint(name, known)}"
        for name in sorted(environ)
        if name.startswith(PREFIX) and name not in known and name.removesuffix(_FROM_FILE) not in known
    ]


def _hint(given: str, known: Iterable[str]) -> str:
    """A similar setting, by the whole name or, for a key in the wrong table, by its last part."""
    names = list(known)
    close = difflib.get_close_matches(given.replace("-", "_"), names, n=1, cutoff=0.7)
    if not close:
        last = given.replace("-", "_").rpartition(".")[2]
        close = [name for name in names if name.rpartition(".")[2] == last]
    return f" Did you mean {close[0]}?" if close else ""


def _build(kind: type[S], values: list[Value], path: tuple[str, ...] = ()) -> S:
    given: dict[str, Any] = {}
    for each in fields(cast("type[Any]", kind)):
        here = (*path, each.name)
        own = next((one for one in values if one.setting.path == here), None)
        given[each.name] = (
            own.value if own is not None else _build(cast("type[Any]", type(default_of(each))), values, here)
        )
    return kind(**given)
