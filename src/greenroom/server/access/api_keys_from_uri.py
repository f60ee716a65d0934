"""Opens the store of API keys that a setting names."""

from __future__ import annotations

from greenroom.records.service_uri import is_postgres
from greenroom.server.access.api_key_file import ApiKeyFile, SqliteApiKeys
from greenroom.server.access.api_keys import ApiKeyStore


def api_keys_from_uri(place: str) -> ApiKeyStore:
    """Opens the store at a path or at a URI of PostgreSQL, without reading it. Raises MissingExtra."""
    if is_postgres(place):
        from greenroom.server.access.postgres_api_keys import PostgresApiKeys

        return PostgresApiKeys(place)
    return SqliteApiKeys(ApiKeyFile(place))
