"""Loads settings from flags, environment variables and a file, in this order of precedence."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast, get_origin, get_type_hints

import msgspec

from greenroom.errors import ConfigurationError
from greenroom.records.service_uri import without_password
from greenroom.server.settings import OTHER_VARIABLES, ServeSettings, field_types, in_words

FILE_NAME = "greenroom.toml"

_PREFIX = "GREENROOM_"
_FROM_FILE = "_FILE"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting. key: names of the tables and of the key in TOML, with dots. type: with limits. plain_type: without,
    for the command line."""

    key: str
    type: Any
    plain_type: Any
    default: Any
    help: str
    flag: str
    default_words: str | None

    @property
    def variable(self) -> str:
        return _PREFIX + self.key.replace(".", "_").upper()

    @property
    def default_in_words(self) -> str:
        if self.default_words is not None or self.default is None:
            return self.default_words or "none"
        if self.takes_list:
            return ", ".join(self.default) or "none"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)

    @property
    def kind(self) -> str:
        """The valid values in words."""
        return in_words(self.type)

    @property
    def takes_list(self) -> bool:
        return get_origin(self.type) is tuple

    def convert(self, value: Any, *, strict: bool) -> Any:
        """strict: False to convert text to numbers and booleans. Raises msgspec.ValidationError."""
        return msgspec.convert(value, self.type, strict=strict)


@cache
def all_settings() -> tuple[Setting, ...]:
    """The settings of `greenroom serve`, in the order of the fields: its own before those of `create_app`."""
    return tuple(_settings(ServeSettings))


def _settings(kind: type[Any], prefix: str = "") -> Iterable[Setting]:
    types = field_types(kind)
    plain_types = get_type_hints(kind)
    for each in sorted(fields(kind), key=lambda one: one.name not in kind.__annotations__):
        key = prefix + each.name
        if is_dataclass(each.default):
            yield from _settings(plain_types[each.name], key + ".")
            continue
        yield Setting(
            key=key,
            type=types[each.name],
            plain_type=plain_types[each.name],
            default=each.default,
            help=each.metadata["description"],
            flag=each.metadata["flag"] or "--" + re.sub(r"[._]", "-", key),
            default_words=each.metadata["default_words"],
        )


@dataclass(frozen=True, kw_only=True)
class Value:
    """A setting's value and a description of its source."""

    setting: Setting
    value: Any
    origin: str

    @property
    def shown(self) -> str:
        """The value for display, with passwords in URLs masked."""
        if self.value is None:
            return (self.setting.default_words or "none").replace("`", "")
        value: object = self.value
        return without_password(json.dumps(value) if isinstance(value, (tuple, bool)) else str(value))


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """warnings: about variables with our prefix that are no settings."""

    settings: ServeSettings
    values: Sequence[Value]
    warnings: Sequence[str]


def find_file(*folders: Path) -> Path | None:
    """The first `greenroom.toml` in these folders."""
    return next((folder / FILE_NAME for folder in folders if (folder / FILE_NAME).is_file()), None)


def load_configuration(
    *, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> Configuration:
    """Loads the settings. flags: the given flags, by the setting's key.

    Raises one ConfigurationError that lists all faults.
    """
    environ, flags = environ or {}, flags or {}
    faults: list[str] = []
    in_file = _read_file(file, faults) if file is not None else {}
    values: dict[str, Value] = {}
    for setting in all_settings():
        key, value, origin = setting.key, setting.default, "default"
        try:
            if key in flags:
                origin = f"flag {setting.flag}"
                value = setting.convert(value := flags[key], strict=True)
            elif (found := _from_environment(setting, environ, faults)) is not None:
                value, origin, is_text = found
                value = setting.convert(value, strict=not is_text)
            elif key in in_file:
                value, origin = in_file[key]
                value = setting.convert(value, strict=True)
        except msgspec.ValidationError:
            faults.append(f"{origin}: {key} must be {setting.kind}, not {without_password(repr(value))}")
        values[key] = Value(setting=setting, value=value, origin=origin)
    if faults:
        raise ConfigurationError(faults)
    return Configuration(
        settings=_build(ServeSettings, values), values=list(values.values()), warnings=_unknown_variables(environ)
    )


def _from_environment(setting: Setting, environ: Mapping[str, str], faults: list[str]) -> tuple[Any, str, bool] | None:
    """Value, origin, and whether the value is text to convert. An empty variable counts as unset; `NAME_FILE` names a
    file that holds the value."""
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
    if setting.takes_list and text.lstrip().startswith("["):
        try:
            return json.loads(text), origin, False
        except ValueError:
            return text, origin, False
    if setting.takes_list:
        return [part.strip() for part in text.split(",") if part.strip()], origin, True
    return text, origin, True


def _read_file(file: Path, faults: list[str]) -> dict[str, tuple[Any, str]]:
    """Values and origins."""
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{file} can't be read: {error}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{file} is not valid TOML: {error}"]) from error
    known = [setting.key for setting in all_settings()]
    found: dict[str, tuple[Any, str]] = {}
    for key, value in _flattened(document, known):
        location = f"{file}:{_line_of(text, key)}"
        if key in known:
            found[key] = value, location
        else:
            faults.append(f"{location}: there is no setting {key}.{_hint(key, known)}")
    return found


def _flattened(table: Mapping[str, Any], known: Sequence[str], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in table.items():
        key = prefix + name
        if isinstance(value, dict) and any(one.startswith(key + ".") for one in known):
            yield from _flattened(cast("dict[str, Any]", value), known, key + ".")
        else:
            yield key, value


def _line_of(text: str, key: str) -> int:
    """The line on which a key's value begins: the one after the longest prefix of the file that lacks the key."""
    lines = text.splitlines()
    begins = 1
    for count in range(len(lines) + 1):
        try:
            document: Any = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        for name in key.split("."):
            document = cast("dict[str, Any]", document).get(name) if isinstance(document, dict) else None
        if document is not None:
            break
        begins = count + 1
    return begins


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = [*OTHER_VARIABLES, *(setting.variable for setting in all_settings())]
    return [
        f"{name} is not a setting of greenroom.{_hint(name, known)}"
        for name in sorted(environ)
        if name.startswith(_PREFIX) and name.removesuffix(_FROM_FILE) not in known
    ]


def _hint(given: str, known: Sequence[str]) -> str:
    """A similar setting, by the whole name or, for a key in the wrong table, by its last part."""
    given = given.replace("-", "_")
    same_end = [name for name in known if name.rpartition(".")[2] == given.rpartition(".")[2]]
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.7) or same_end
    return f" Did you mean {close[0]}?" if close else ""


def _build(kind: Any, values: Mapping[str, Value], prefix: str = "") -> Any:
    given = {
        each.name: values[key].value
        if (key := prefix + each.name) in values
        else _build(type(each.default), values, key + ".")
        for each in fields(kind)
    }
    return kind(**given)
