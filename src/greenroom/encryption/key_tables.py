"""The statements on data keys in databases, which SQLite and PostgreSQL share."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence

from greenroom.encryption.columns import TABLES
from greenroom.encryption.key_provider import WrappedKey
from greenroom.encryption.key_ring import StoredKey, StoredKeys

SELECT_KEYS = "SELECT id, key_id, wrapped, created_at, reserved FROM encryption_keys ORDER BY id"
HAS_KEYS = "SELECT count(*) FROM encryption_keys"
ADD_KEY = """
    INSERT INTO encryption_keys (id, key_id, wrapped, created_at, reserved) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (id) DO NOTHING
"""
RESERVE = "UPDATE encryption_keys SET reserved = reserved + ? WHERE id = ? RETURNING reserved"
REWRAP = "UPDATE encryption_keys SET key_id = ?, wrapped = ? WHERE id = ? AND wrapped = ? RETURNING id"

PLAINTEXT = "SELECT count(*) FROM encryption_state WHERE name = 'plaintext'"
ALLOW_PLAINTEXT = f"""
    INSERT INTO encryption_state (name, value) SELECT 'plaintext', 'allowed'
    WHERE {" OR ".join(f"EXISTS (SELECT 1 FROM {table})" for table in TABLES)}
    ON CONFLICT (name) DO NOTHING
"""
"""Executed before the first keys are added: rows that are there are not encrypted."""

FORBID_PLAINTEXT = "DELETE FROM encryption_state WHERE name = 'plaintext'"


def stored_keys(rows: Iterable[Sequence[object]], plaintext: int) -> StoredKeys:
    keys = [
        StoredKey(
            id=int(str(number)),
            wrapped=WrappedKey(str(key_id), base64.b64decode(str(wrapped))),
            created_at=float(str(created_at)),
            values=int(str(reserved)),
        )
        for number, key_id, wrapped, created_at, reserved in rows
    ]
    return StoredKeys(keys, bool(plaintext))


def row_of(key: StoredKey) -> tuple[int, str, str, float, int]:
    return key.id, key.wrapped.key_id, text_of(key.wrapped), key.created_at, key.values


def text_of(wrapped: WrappedKey) -> str:
    return base64.b64encode(wrapped.data).decode()
