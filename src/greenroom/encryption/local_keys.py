"""Key-encryption keys in a file, or in an environment variable."""

from __future__ import annotations

import base64
import binascii
import os
import re
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from greenroom.encryption.aes import KEY_BYTES, decrypt, encrypt
from greenroom.encryption.key_provider import KeyProvider, WrappedKey
from greenroom.errors import KeyRefused

_KEY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class LocalKeys(KeyProvider):
    """Key-encryption keys by their ids, which are read again for each call, so that a new key needs no restart."""

    def __init__(self, read: Callable[[], tuple[str, Mapping[str, bytes]]]) -> None:
        """read: returns the id of the current key, and all keys. Raises KeyRefused."""
        self._read = read

    async def current_key_id(self) -> str:
        return self._read()[0]

    async def wrap(self, data_key: bytes) -> WrappedKey:
        current, keys = self._read()
        return WrappedKey(current, encrypt(keys[current], data_key, _purpose(current)))

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        _, keys = self._read()
        key = keys.get(wrapped.key_id)
        if key is None:
            known = ", ".join(sorted(keys))
            raise KeyRefused(f"the data needs the key {wrapped.key_id!r}, and encryption.keys has only: {known}")
        data_key = decrypt(key, wrapped.data, _purpose(wrapped.key_id))
        if data_key is None:
            raise KeyRefused(f"the key {wrapped.key_id!r} of encryption.keys is not the one that encrypted the data")
        return data_key


def keys_of_file(path: str) -> LocalKeys:
    """The keys of a TOML file: `current = "ID"`, and a table `keys` with the keys by id, each 32 bytes in base64."""

    def read() -> tuple[str, Mapping[str, bytes]]:
        return _parse_file(path)

    return LocalKeys(read)


def keys_of_variable(name: str) -> LocalKeys:
    """The keys of a variable: `ID:KEY`, and separated by commas after it the earlier ones. The first is current."""

    def read() -> tuple[str, Mapping[str, bytes]]:
        text = os.environ.get(name, "").strip()
        if not text:
            raise KeyRefused(f"the variable {name} of encryption.keys is not set")
        pairs = [entry.strip().partition(":") for entry in text.split(",")]
        keys = {key_id: _key(key_id, key, f"the variable {name}") for key_id, _, key in pairs}
        return pairs[0][0], keys

    return LocalKeys(read)


def add_key(path: str) -> str:
    """Adds a new key to a file, which is made if it is missing, and makes it the current one. Returns its id.

    Raises KeyRefused.
    """
    keys: dict[str, bytes] = {}
    if os.path.exists(path):
        keys.update(_parse_file(path)[1])
    key_id = _new_key_id(keys)
    keys[key_id] = os.urandom(KEY_BYTES)
    lines = [f'current = "{key_id}"', "", "[keys]"]
    lines += [f'"{one}" = "{base64.b64encode(key).decode()}"' for one, key in keys.items()]

    unfinished = f"{path}.new"
    try:
        with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except OSError as error:
        raise KeyRefused(f"{path} can't be written: {error.strerror}") from error
    return key_id


def _new_key_id(keys: Mapping[str, bytes]) -> str:
    today = time.strftime("%Y-%m-%d", time.gmtime())
    key_id = today
    number = 2
    while key_id in keys:
        key_id = f"{today}.{number}"
        number += 1
    return key_id


def _parse_file(path: str) -> tuple[str, Mapping[str, bytes]]:
    try:
        document: dict[str, Any] = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise KeyRefused(f"the file {path} of encryption.keys can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KeyRefused(f"the file {path} of encryption.keys is not valid TOML: {error}") from None

    current: object = document.get("current")
    table: object = document.get("keys")
    if not isinstance(current, str) or not isinstance(table, dict) or current not in table:
        raise KeyRefused(
            f"the file {path} of encryption.keys needs `current`, the id of a key, and the table `keys` with that key"
        )
    keys: dict[str, Any] = table  # pyright: ignore[reportUnknownVariableType]
    return current, {key_id: _key(key_id, key, path) for key_id, key in keys.items()}


def _key(key_id: str, text: object, place: str) -> bytes:
    """Decodes a key. Its text is in no error."""
    try:
        key = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES or not _KEY_ID.fullmatch(key_id):
        raise KeyRefused(
            f"the key {key_id[:20]!r} in {place} must be {KEY_BYTES} bytes in base64, with an id of letters and "
            "digits. Make one: greenroom encryption keygen FILE"
        )
    return key


def _purpose(key_id: str) -> bytes:
    return f"greenroom-data-key:{key_id}".encode()
