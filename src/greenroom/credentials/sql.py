"""Credentials in a SQLite file or a PostgreSQL database, the sessions' or another.

Without encryption, protect the file, or the database.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from greenroom.credentials.requests import KEPT_SECONDS
from greenroom.credentials.service import BaseCredentialService
from greenroom.records import wire
from greenroom.records.auth import AuthCredential, CredentialRequest

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

_read_credential = wire.decoder(AuthCredential)
_read_request = wire.decoder(CredentialRequest)

_OF_USER = "app_name = ? AND user_id = ?"
_LOAD = f"SELECT data FROM credentials WHERE {_OF_USER} AND credential_key = ?"
_SAVE = """
    INSERT INTO credentials (app_name, user_id, credential_key, data) VALUES (?, ?, ?, ?)
    ON CONFLICT (app_name, user_id, credential_key) DO UPDATE SET data = excluded.data
"""
_DELETE = f"DELETE FROM credentials WHERE {_OF_USER} AND credential_key = ?"
_LIST = f"SELECT credential_key, data FROM credentials WHERE {_OF_USER} ORDER BY credential_key"
_LOAD_REQUEST = f"SELECT data FROM credential_requests WHERE {_OF_USER} AND id = ?"
_SAVE_REQUEST = """
    INSERT INTO credential_requests (app_name, user_id, id, created_at, data) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (app_name, user_id, id) DO UPDATE SET created_at = excluded.created_at, data = excluded.data
"""
_DELETE_REQUESTS = f"DELETE FROM credential_requests WHERE {_OF_USER} AND json_extract(data, '$.sessionId') = ?"
_LIST_REQUESTS = f"SELECT id, data FROM credential_requests WHERE {_OF_USER}"
_DELETE_REQUEST = f"DELETE FROM credential_requests WHERE {_OF_USER} AND id = ?"
_FORGET_REQUESTS = "DELETE FROM credential_requests WHERE created_at < ?"


class SqlCredentialService(BaseCredentialService):
    """Uses statements that SQLite and PostgreSQL share."""

    def __init__(self, database: SqliteDatabase | PostgresDatabase) -> None:
        """Takes ownership of `database`, which is closed with the service."""
        self._database = database
        self._closed = False

    async def load_credential(self, *, app_name: str, user_id: str, credential_key: str) -> AuthCredential | None:
        data = await self._data(_LOAD, "credentials", app_name, user_id, credential_key)
        return _read_credential(data) if data is not None else None

    async def save_credential(
        self, *, app_name: str, user_id: str, credential_key: str, credential: AuthCredential
    ) -> None:
        key = app_name, user_id, credential_key
        data = self._database.codec.encode(wire.encode(credential), "credentials", *key)
        await self._database.execute(_SAVE, *key, data)

    async def delete_credential(self, *, app_name: str, user_id: str, credential_key: str) -> None:
        await self._database.execute(_DELETE, app_name, user_id, credential_key)

    async def list_credentials(self, *, app_name: str, user_id: str) -> dict[str, AuthCredential]:
        rows = await self._database.fetch(_LIST, app_name, user_id)
        decode = self._database.codec.decode
        return {key: _read_credential(decode(data, "credentials", app_name, user_id, key)) for key, data in rows}

    async def save_request(self, *, app_name: str, user_id: str, request: CredentialRequest) -> None:
        await self._database.execute(_FORGET_REQUESTS, request.created_at - KEPT_SECONDS)
        data = self._database.codec.encode(wire.encode(request), "credential_requests", app_name, user_id, request.id)
        await self._database.execute(_SAVE_REQUEST, app_name, user_id, request.id, request.created_at, data)

    async def delete_requests(self, *, app_name: str, user_id: str, session_id: str) -> None:
        if self._database.codec.is_plain:
            await self._database.execute(_DELETE_REQUESTS, app_name, user_id, session_id)
            return
        for request_id, data in await self._database.fetch(_LIST_REQUESTS, app_name, user_id):
            place = "credential_requests", app_name, user_id, request_id
            if _read_request(self._database.codec.decode(data, *place)).session_id == session_id:
                await self._database.execute(_DELETE_REQUEST, app_name, user_id, request_id)

    async def delete_user(self, *, app_name: str, user_id: str) -> None:
        for table in ("credentials", "credential_requests"):
            await self._database.execute(f"DELETE FROM {table} WHERE {_OF_USER}", app_name, user_id)

    async def load_request(self, *, app_name: str, user_id: str, request_id: str) -> CredentialRequest | None:
        data = await self._data(_LOAD_REQUEST, "credential_requests", app_name, user_id, request_id)
        return _read_request(data) if data is not None else None

    async def _data(self, query: str, table: str, *key: str) -> bytes | None:
        rows = await self._database.fetch(query, *key)
        return self._database.codec.decode(rows[0][0], table, *key) if rows else None

    async def load_keys(self) -> None:
        await self._database.fetch("SELECT 1")

    @property
    def is_encrypted(self) -> bool:
        return not self._database.codec.is_plain

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._database.close()


class SqliteCredentialService(SqlCredentialService):
    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Opens the file on the first call."""
        from greenroom.sqlite.database import Database

        super().__init__(Database.open(path))


class PostgresCredentialService(SqlCredentialService):
    def __init__(self, uri: str) -> None:
        """Connects on the first call. Raises MissingExtra."""
        from greenroom.postgres.database import Database

        super().__init__(Database.open(uri))
