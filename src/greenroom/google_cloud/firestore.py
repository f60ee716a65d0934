"""A Firestore database: its client, transactions with retries, and JSON as fields of documents."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from greenroom.errors import InvalidRequest, MissingExtra, StorageError
from greenroom.records import wire
from greenroom.records.base import JsonValue
from greenroom.records.state import REMOVED

T = TypeVar("T")

BATCH = 500
"""Deletions in one request."""

_RETRY_SECONDS = 30
_MAX_ID_BYTES = 1500
_MAX_DEPTH = 15
"""Levels of lists and maps; Firestore allows 20 in a document."""

_RESERVED = re.compile(r"__.*__|\.\.?|", re.DOTALL)
_JSON = "%json"
"""The one key of a map that holds a value as JSON, since Firestore can't hold it as it is."""


class FirestoreDatabase:
    """A Firestore database.

    client: an `AsyncClient` of google-cloud-firestore. None: created on first use, for `project` and `database`.

    Without a project, the one of the machine's credentials is used. FIRESTORE_EMULATOR_HOST is honoured.
    """

    def __init__(self, client: Any = None, *, project: str | None = None, database: str | None = None) -> None:
        self._given = client
        self._project = project
        self._database = database

    @classmethod
    def from_uri(cls, uri: str) -> FirestoreDatabase:
        """Opens `firestore://project/database`. The database defaults to `(default)`."""
        parts = urlsplit(uri)
        return cls(project=parts.netloc or None, database=parts.path.strip("/") or None)

    @cached_property
    def client(self) -> Any:
        """Raises MissingExtra, StorageError."""
        if self._given is not None:
            return self._given
        try:
            from google.auth.exceptions import GoogleAuthError
            from google.cloud.firestore import AsyncClient
        except ImportError as error:
            raise MissingExtra("firestore", "google-cloud-firestore") from error
        try:
            return AsyncClient(project=self._project, database=self._database)
        except (GoogleAuthError, OSError) as error:
            raise StorageError("Connecting to Firestore", str(error)) from error

    async def transact(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Runs a function of the transaction, again after a conflict with another transaction.

        Documents that must not exist yet are created first, so that a concurrent transaction that creates them, too,
        is noticed by this.
        """
        with translated_errors("Writing"):
            client = self.client
            from google.api_core.exceptions import Conflict
            from google.cloud.firestore import async_transactional
            from tenacity import AsyncRetrying, retry_if_exception, stop_after_delay, wait_random_exponential

            async for attempt in AsyncRetrying(
                retry=retry_if_exception(lambda error: isinstance(error.__cause__ or error, Conflict)),
                wait=wait_random_exponential(multiplier=0.02, max=1),
                stop=stop_after_delay(_RETRY_SECONDS),
                reraise=True,
            ):
                with attempt:
                    return await async_transactional(work)(client.transaction(max_attempts=1))
        raise AssertionError("the last attempt returns or raises")

    async def get_all(self, references: Iterable[Any], transaction: Any = None) -> dict[str, Any]:
        """Snapshots by path, also of documents that don't exist."""
        with translated_errors("Reading"):
            found = self.client.get_all(list(references), transaction=transaction)
            return {snapshot.reference.path: snapshot async for snapshot in found}

    async def fetch(self, query: Any, transaction: Any = None) -> list[Any]:
        """The snapshots that a query finds."""
        with translated_errors("Reading"):
            return [snapshot async for snapshot in query.stream(transaction=transaction)]

    async def merge(self, reference: Any, fields: dict[str, Any]) -> None:
        with translated_errors("Writing"):
            await reference.set(fields, merge=True)

    async def delete(self, reference: Any) -> None:
        with translated_errors("Deleting"):
            await reference.delete()

    async def delete_all(self, query: Any) -> None:
        """Deletes the documents that a query finds, in batches."""
        while found := await self.fetch(query.limit(BATCH)):
            batch = self.client.batch()
            for snapshot in found:
                batch.delete(snapshot.reference)
            with translated_errors("Deleting"):
                await batch.commit()

    async def close(self) -> None:
        if self._given is None and "client" in self.__dict__:
            await self.client._firestore_api.transport.close()
            del self.client


@contextmanager
def translated_errors(operation: str) -> Generator[None]:
    """Raises InvalidRequest for what Firestore can't store, and StorageError when it fails."""
    try:
        yield
    except MissingExtra:
        raise
    except Exception as error:  # without the package, its errors can't be raised
        from google.api_core.exceptions import GoogleAPICallError, InvalidArgument, RetryError

        cause = error.__cause__ if isinstance(error, ValueError) and error.__cause__ else error  # after many conflicts
        if isinstance(cause, InvalidArgument):
            raise InvalidRequest(f"Firestore can't store this: {cause.message}") from error
        if isinstance(cause, (GoogleAPICallError, RetryError)):
            raise StorageError(f"{operation} in Firestore", str(cause)) from error
        raise


def where(query: Any, *conditions: tuple[str, str, Any]) -> Any:
    from google.cloud.firestore_v1.base_query import FieldFilter

    for condition in conditions:
        query = query.where(filter=FieldFilter(*condition))
    return query


def document_id(name: str) -> str:
    """An id for a document named so: the name itself where Firestore allows it."""
    escaped = name.replace("%", "%25").replace("/", "%2F")
    if _RESERVED.fullmatch(escaped):
        escaped = f"%{escaped}"
    if len(escaped.encode()) > _MAX_ID_BYTES:
        return f"%{hashlib.sha256(name.encode()).hexdigest()}"
    return escaped


def field_name(key: str) -> str:
    """A field for a key: the key itself where Firestore allows it."""
    return f"%{key}" if key.startswith("%") or _RESERVED.fullmatch(key) else key


def to_field(value: JsonValue) -> Any:
    return value if _fits(value, _MAX_DEPTH) else {_JSON: wire.encode(value).decode()}


def to_fields(values: Mapping[str, JsonValue]) -> dict[str, Any]:
    return {field_name(key): to_field(value) for key, value in values.items()}


def from_fields(fields: Mapping[str, Any]) -> dict[str, JsonValue]:
    return {key.removeprefix("%"): _from_field(value) for key, value in fields.items()}


def set_paths(map_name: str, changes: Mapping[str, JsonValue]) -> dict[str, Any]:
    """An update of a document that sets keys of a map in it, and deletes those whose new value is `REMOVED`."""
    from google.cloud.firestore_v1.field_path import FieldPath

    return {FieldPath(map_name, name).to_api_repr(): value for name, value in _changed_fields(changes).items()}


def merge_fields(transaction: Any, reference: Any, changes: Mapping[str, JsonValue]) -> None:
    """Sets fields of a document, which may not exist yet, and deletes those whose new value is `REMOVED`."""
    from google.cloud.firestore_v1.field_path import FieldPath

    if fields := _changed_fields(changes):
        transaction.set(reference, fields, merge=[FieldPath(name).to_api_repr() for name in fields])


def _changed_fields(changes: Mapping[str, JsonValue]) -> dict[str, Any]:
    from google.cloud.firestore import DELETE_FIELD

    return {field_name(key): DELETE_FIELD if value == REMOVED else to_field(value) for key, value in changes.items()}


def _from_field(field: Any) -> JsonValue:
    if isinstance(field, dict) and _JSON in field:
        return msgspec.json.decode(cast("dict[str, str]", field)[_JSON])
    return wire.to_plain(cast("object", field)) if isinstance(field, (dict, list, datetime)) else field


def _fits(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return depth > 0 and all(field_name(key) == key and _fits(inner, depth - 1) for key, inner in items)
    if isinstance(value, list):
        inner_values = cast("list[Any]", value)
        return depth > 0 and all(not isinstance(one, list) and _fits(one, depth - 1) for one in inner_values)
    return type(value) is not int or abs(value) < 2**53


def to_iso(seconds: float) -> str:
    """Unix seconds as text that sorts by time."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # clients may send any number
        moment = datetime.max if seconds > 0 else datetime.min
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def from_iso(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
