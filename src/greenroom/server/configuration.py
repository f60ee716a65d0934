"""Loads settings from flags, environment variables and a file, in this order of precedence."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, cast, get_origin, get_type_hints

import msgspec

from greenroom.errors import ConfigurationError
from greenroom.records.service_uri import without_password
from greenroom.server.settings import OTHER_VARIABLES, ServerSettings, ServeSettings, field_types, in_words

FILE_NAME = "greenroom.toml"

_PREFIX = "GREENROOM_"
_FROM_FILE = "_FILE"
"""The suffix of a variable that names a file with the value."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A field of the settings classes, with its flag, its variable and its key in TOML."""

    key: str
    """The key in TOML, after the names of its tables: `cors.max_age`."""
    type: Any
    """The type with its limits."""
    plain_type: Any
    """The type without limits, for the command line."""
    default: Any
    help: str
    flag: str
    default_words: str | None
    """Describes the default, if its value doesn't."""

    @property
    def variable(self) -> str:
        return _PREFIX + self.key.replace(".", "_").upper()

    @property
    def default_in_words(self) -> str:
        if self.default_words is not None:
            return self.default_words
        if self.default is None:
            return "none"
        if self.takes_list:
            return ", ".join(self.default) or "none"
        if isinstance(self.default, bool):
            return str(self.default).lower()
        if isinstance(self.default, float):
            return f"{self.default:g}"
        return str(self.default)

    @property
    def kind(self) -> str:
        """Describes the valid values."""
        return in_words(self.type)

    @property
    def takes_list(self) -> bool:
        return get_origin(self.type) is tuple

    def convert(self, value: Any, *, is_text: bool) -> Any:
        """Checks a value. is_text: numbers and booleans are read from text. Raises msgspec.ValidationError."""
        return msgspec.convert(value, self.type, strict=not is_text)


@cache
def all_settings() -> tuple[Setting, ...]:
    """The settings of `greenroom serve`, in the order of the fields: its own before those of `create_app`."""
    return tuple(_settings_of(ServeSettings))


def _settings_of(kind: type[Any], prefix: str = "") -> Iterator[Setting]:
    types = field_types(kind)
    plain_types = get_type_hints(kind)
    own_first = sorted(fields(kind), key=lambda field: field.name not in kind.__annotations__)
    for field in own_first:
        key = prefix + field.name
        if is_dataclass(field.default):
            yield from _settings_of(plain_types[field.name], key + ".")
            continue
        yield Setting(
            key=key,
            type=types[field.name],
            plain_type=plain_types[field.name],
            default=field.default,
            help=field.metadata["description"],
            flag=field.metadata["flag"] or "--" + re.sub(r"[._]", "-", key),
            default_words=field.metadata["default_words"],
        )


@dataclass(frozen=True, kw_only=True)
class Value:
    """The value of a setting."""

    setting: Setting
    value: Any
    origin: str
    """The source of the value: a flag, a variable, a line of the file, or `default`."""

    @property
    def shown(self) -> str:
        """The value for display, with passwords in URLs masked."""
        if self.value is None:
            return (self.setting.default_words or "none").replace("`", "")
        value: object = self.value
        text = json.dumps(value) if isinstance(value, (tuple, bool)) else str(value)
        return "********" if "-----BEGIN" in text else without_password(text)  # some settings take keys as text


def values_of(settings: ServerSettings, origins: Mapping[str, str]) -> list[Value]:
    """The values of settings in effect. origins: of loaded values, by key; code may have changed them since."""
    values: list[Value] = []
    for setting in _settings_of(type(settings)):
        value: Any = settings
        for name in setting.key.split("."):
            value = getattr(value, name)
        origin = origins.get(setting.key, "code" if value != setting.default else "default")
        if origin == "default" and value != setting.default:
            origin = "derived"
        values.append(Value(setting=setting, value=value, origin=origin))
    return values


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """The result of loading."""

    settings: ServeSettings
    values: Sequence[Value]
    warnings: Sequence[str]
    """Of variables that begin like ours and are no settings."""

    @property
    def origins(self) -> dict[str, str]:
        """The origins of the values, by key."""
        return {value.setting.key: value.origin for value in self.values}


def find_file(*folders: Path) -> Path | None:
    """Returns the first `greenroom.toml` in these folders."""
    for folder in folders:
        file = folder / FILE_NAME
        if file.is_file():
            return file
    return None


class _SourceValue(NamedTuple):
    """A value in one of the sources."""

    value: Any
    origin: str
    is_text: bool = False


def load_configuration(
    *, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> Configuration:
    """Loads the settings. flags: the given flags, by the setting's key.

    Raises one ConfigurationError that lists all faults.
    """
    flags = flags or {}
    environ = environ or {}
    faults: list[str] = []
    in_file = _read_file(file, faults) if file is not None else {}

    values: dict[str, Value] = {}
    for setting in all_settings():
        if setting.key in flags:
            sourced = _SourceValue(flags[setting.key], f"flag {setting.flag}")
        else:
            sourced = _from_environment(setting, environ, faults) or in_file.get(setting.key)
        if sourced is None:
            values[setting.key] = Value(setting=setting, value=setting.default, origin="default")
            continue

        try:
            value = setting.convert(sourced.value, is_text=sourced.is_text)
        except msgspec.ValidationError:
            shown = without_password(repr(sourced.value))
            faults.append(f"{sourced.origin}: {setting.key} must be {setting.kind}, not {shown}")
        else:
            values[setting.key] = Value(setting=setting, value=value, origin=sourced.origin)

    if faults:
        raise ConfigurationError(faults)
    return Configuration(
        settings=_build(ServeSettings, values), values=list(values.values()), warnings=_unknown_variables(environ)
    )


def _from_environment(setting: Setting, environ: Mapping[str, str], faults: list[str]) -> _SourceValue | None:
    """Reads a variable. An empty one counts as unset; `NAME_FILE` names a file that holds the value."""
    name = setting.variable
    text = environ.get(name, "")
    path = environ.get(name + _FROM_FILE)
    if not text and path:
        name += _FROM_FILE
        try:
            text = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            faults.append(f"variable {name}: {path} can't be read ({error})")

    if not text:
        return None
    origin = f"variable {name}"
    if not setting.takes_list:
        return _SourceValue(text, origin, is_text=True)
    if not text.lstrip().startswith("["):
        parts = [part.strip() for part in text.split(",")]
        return _SourceValue([part for part in parts if part], origin, is_text=True)
    try:
        return _SourceValue(json.loads(text), origin)
    except ValueError:
        return _SourceValue(text, origin)


def _read_file(file: Path, faults: list[str]) -> dict[str, _SourceValue]:
    """Reads the values of a TOML file. Unknown keys are added to the faults."""
    try:
        text = file.read_text(encoding="utf-8")
        document = tomllib.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError([f"{file} can't be read: {error}"]) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError([f"{file} is not valid TOML: {error}"]) from error

    keys = [setting.key for setting in all_settings()]
    settings: dict[str, _SourceValue] = {}
    for key, value in _flattened(document, keys):
        location = f"{file}:{_line_of(text, key)}"
        if key in keys:
            settings[key] = _SourceValue(value, location)
        else:
            faults.append(f"{location}: there is no setting {key}.{_hint(key, keys)}")
    return settings


def _flattened(table: Mapping[str, Any], keys: Sequence[str], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the keys, with the names of their tables in front, and their values."""
    for name, value in table.items():
        key = prefix + name
        is_known_table = any(one.startswith(key + ".") for one in keys)
        if isinstance(value, dict) and is_known_table:
            yield from _flattened(cast("dict[str, Any]", value), keys, key + ".")
        else:
            yield key, value


def _line_of(text: str, key: str) -> int:
    """Returns the line on which a key's value begins: the one after the longest valid beginning without the key."""
    lines = text.splitlines()
    begins = 1
    for count in range(len(lines) + 1):
        try:
            document = tomllib.loads("\n".join(lines[:count]))
        except tomllib.TOMLDecodeError:
            continue  # in the middle of a value
        if _has_key(document, key):
            break
        begins = count + 1
    return begins


def _has_key(document: Any, key: str) -> bool:
    for name in key.split("."):
        if not isinstance(document, dict) or name not in document:
            return False
        document = cast("dict[str, Any]", document)[name]
    return True


def _unknown_variables(environ: Mapping[str, str]) -> list[str]:
    known = [*OTHER_VARIABLES, *(setting.variable for setting in all_settings())]
    unknown = [name for name in environ if name.startswith(_PREFIX) and name.removesuffix(_FROM_FILE) not in known]
    return [f"{name} is not a setting of greenroom.{_hint(name, known)}" for name in sorted(unknown)]


def _hint(key: str, keys: Sequence[str]) -> str:
    """Suggests a similar setting, by the whole name or, for a key in the wrong table, by its last part."""
    key = key.replace("-", "_")
    close = difflib.get_close_matches(key, keys, n=1, cutoff=0.7)
    if not close:
        last = key.rpartition(".")[2]
        close = [name for name in keys if name.rpartition(".")[2] == last]
    return f" Did you mean {close[0]}?" if close else ""


def _build(kind: Any, values: Mapping[str, Value], prefix: str = "") -> Any:
    """Makes a settings object, with its nested ones, from values by key."""
    arguments: dict[str, Any] = {}
    for field in fields(kind):
        key = prefix + field.name
        if key in values:
            arguments[field.name] = values[key].value
        else:
            arguments[field.name] = _build(type(field.default), values, key + ".")
    return kind(**arguments)
