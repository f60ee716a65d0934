"""The key provider that a URI names."""

from __future__ import annotations

from importlib import import_module
from typing import cast
from urllib.parse import unquote, urlsplit

from greenroom.encryption.key_provider import KeyProvider
from greenroom.errors import ConfigurationError, InvalidRequest, KeyRefused
from greenroom.records.service_uri import without_password

_KNOWN = (
    "file:///path/keys.toml, env://NAME, "
    "google-kms://projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY, python://package.module:provider"
)


def key_provider_from_uri(uri: str) -> KeyProvider:
    """The holder of key-encryption keys at a URI. Raises InvalidRequest, ConfigurationError, MissingExtra.

    `python://package.module:name` names a `KeyProvider`, or a function without arguments that returns one.
    """
    scheme, separator, rest = uri.partition("://")
    if separator and scheme == "file":
        parts = urlsplit(uri)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise InvalidRequest(f"A file of keys is written file:///its/absolute/path, not {uri!r}", location=("uri",))
        from greenroom.encryption.local_keys import keys_of_file

        return keys_of_file(unquote(parts.path))
    if separator and scheme == "env" and rest:
        from greenroom.encryption.local_keys import keys_of_variable

        return keys_of_variable(rest)
    if separator and scheme == "google-kms" and rest:
        from greenroom.encryption.google_kms import GoogleKms

        return GoogleKms(rest.strip("/"))
    if separator and scheme == "python" and ":" in rest:
        return _imported(rest)
    raise InvalidRequest(f"Unknown encryption keys: {uri!r}. Known: {_KNOWN}", location=("uri",))


def not_encrypted(uri: str) -> KeyRefused:
    """The error for a store that can't be encrypted."""
    return KeyRefused(
        f"encryption.keys is set, and {without_password(uri)} can't be encrypted: use SQLite or PostgreSQL for "
        "sessions and memories, and a folder or an object store for artifacts"
    )


def _imported(name: str) -> KeyProvider:
    module, _, attribute = name.partition(":")
    try:
        found: object = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError([f"encryption.keys: {name} can't be imported: {error}"]) from error
    if not hasattr(found, "unwrap") and callable(found):
        found = found()
    if not all(hasattr(found, method) for method in ("current_key_id", "wrap", "unwrap")):
        raise ConfigurationError([f"encryption.keys: {name} is no KeyProvider"])
    return cast("KeyProvider", found)
