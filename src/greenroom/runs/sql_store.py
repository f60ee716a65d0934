"""Run records in a database, by the statements that SQLite and PostgreSQL share."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec

from greenroom.audit.sql import SqlAuditStore
from greenroom.encryption.codec import Codec
from greenroom.errors import StorageError
from greenroom.feedback.sql import DELETE_FEEDBACK_OF_SESSION, SqlFeedbackStore, judged_runs, label_of
from greenroom.records import wire
from greenroom.records.audit import AuditEntry
from greenroom.records.human_requests import EXPIRES_AFTER_SECONDS
from greenroom.records.inbox import HumanRequest, ListRequestsResponse, RequestFilter
from greenroom.records.run import AgentRunRequest, ListRunsResponse, PushConfig, Run, RunFilter, RunStatus, Webhook
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards
from greenroom.records.webhook_delivery import WebhookDelivery, new_deliveries
from greenroom.runs.sql_requests import (
    COUNT_REQUESTS,
    DELETE_ANSWERERS_OF_SESSION,
    GET_REQUEST,
    Fetches,
    list_query,
    read_request,
    write_request,
)
from greenroom.runs.store import RunStore, app_of_feedback, check_limit, next_page, page_position
from greenroom.runs.watch import matches
from greenroom.schedules.sql import SqlScheduleStore
from greenroom.statistics.sql import SqlStatisticsStore
from greenroom.versions.sql import SqlVersionStore

if TYPE_CHECKING:
    from greenroom.postgres.database import Database as PostgresDatabase
    from greenroom.sqlite.database import Database as SqliteDatabase

RunRow: TypeAlias = tuple[str, str, str, str, str, float, str, str | None]
"""id, app_name, user_id, session_id, status, created_at, data, request."""

_decode_run = wire.decoder(Run)
_decode_push_config = wire.decoder(PushConfig)
_decode_webhook = wire.decoder(Webhook)
_decode_delivery = wire.decoder(WebhookDelivery)
_decode_request = wire.decoder(AgentRunRequest)

SAVE_KEY = """
    INSERT INTO idempotency_keys (app_name, user_id, key, run_id, digest) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (app_name, user_id, key) DO NOTHING
"""
KEY_HOLDER = "SELECT run_id FROM idempotency_keys WHERE app_name = ? AND user_id = ? AND key = ?"
_SAVE_APP_WEBHOOK = """
    INSERT INTO app_webhooks (app_name, id, data) VALUES (?, ?, ?)
    ON CONFLICT (app_name, id) DO UPDATE SET data = excluded.data
"""
_APP_WEBHOOKS = "SELECT app_name, id, data FROM app_webhooks ORDER BY app_name, id"
_DELETE_APP_WEBHOOK = "DELETE FROM app_webhooks WHERE app_name = ? AND id = ? RETURNING id"
_GET = "SELECT id, data, request FROM runs WHERE id = ?"
_FIND = """
    SELECT runs.id, data, request, digest FROM idempotency_keys JOIN runs ON runs.id = run_id
    WHERE idempotency_keys.app_name = ? AND idempotency_keys.user_id = ? AND key = ?
"""
_DELETE_OF_RUNS = """
    DELETE FROM {} WHERE run_id IN (SELECT id FROM runs WHERE app_name = ? AND user_id = ? AND session_id = ?)
"""
DELETE_SESSION = (
    _DELETE_OF_RUNS.format("idempotency_keys"),
    _DELETE_OF_RUNS.format("webhooks"),
    _DELETE_OF_RUNS.format("webhook_deliveries"),
    _DELETE_OF_RUNS.format("wake_ups"),
    DELETE_ANSWERERS_OF_SESSION,
    _DELETE_OF_RUNS.format("requests"),
    DELETE_FEEDBACK_OF_SESSION,
    "DELETE FROM runs WHERE app_name = ? AND user_id = ? AND session_id = ?",
)
_UNFINISHED = """
    SELECT app_name, user_id, session_id, id, data, request FROM runs
    WHERE status IN ('queued', 'running') {and_in_shards} ORDER BY created_at, number
"""

SAVE_PUSH_CONFIG = """
    INSERT INTO webhooks (run_id, id, data, is_over) VALUES (?, ?, ?, ?)
    ON CONFLICT (run_id, id) DO UPDATE SET data = excluded.data, is_over = excluded.is_over
"""
_PUSH_CONFIGS = "SELECT id, data FROM webhooks WHERE run_id = ? ORDER BY id"
_OPEN_PUSH_CONFIGS = """
    SELECT app_name, user_id, session_id, run_id, webhooks.id, webhooks.data FROM webhooks JOIN runs ON runs.id = run_id
    WHERE is_over = 0 {and_in_shards}
"""
DELETE_PUSH_CONFIG = "DELETE FROM webhooks WHERE run_id = ? AND id = ?"

ADD_DELIVERY = """
    INSERT INTO webhook_deliveries (id, run_id, app_name, webhook_id, created_at, number, next_try_at, data)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
UPDATE_DELIVERY = "UPDATE webhook_deliveries SET next_try_at = ?, data = ? WHERE id = ?"
_DELIVERY = "SELECT data FROM webhook_deliveries WHERE id = ?"
_DELIVERIES = """
    SELECT id, data FROM webhook_deliveries WHERE app_name = ? AND webhook_id = ?{}
    ORDER BY created_at DESC, number DESC, id DESC LIMIT ?
"""
_PENDING_DELIVERIES = """
    SELECT app_name, user_id, session_id, delivery_id, delivery
    FROM (
        SELECT run_id, id AS delivery_id, data AS delivery FROM webhook_deliveries WHERE next_try_at IS NOT NULL
    ) AS pending
    JOIN runs ON runs.id = run_id WHERE 1 = 1 {and_in_shards}
"""
DELETE_DELIVERIES = "DELETE FROM webhook_deliveries WHERE run_id = ? AND webhook_id = ?"
_PRUNE_DELIVERIES = """
    DELETE FROM webhook_deliveries
    WHERE app_name = ? AND webhook_id = ? AND next_try_at IS NULL AND created_at <= (
        SELECT created_at FROM webhook_deliveries WHERE app_name = ? AND webhook_id = ?
        ORDER BY created_at DESC, number DESC, id DESC LIMIT 1 OFFSET ?
    )
"""

SAVE_WAKE_UP = """
    INSERT INTO wake_ups (run_id, at) VALUES (?, ?) ON CONFLICT (run_id) DO UPDATE SET at = excluded.at
"""
_DELETE_WAKE_UP = "DELETE FROM wake_ups WHERE run_id = ?"
_MOVE_WAKE_UP = "UPDATE wake_ups SET at = ? WHERE run_id = ? AND at = ?"
_DELETE_WAKE_UP_AT = "DELETE FROM wake_ups WHERE run_id = ? AND at = ?"
_NEXT_WAKE_UPS = "SELECT at, run_id FROM wake_ups ORDER BY at LIMIT ?"

_MARK = " unremembered"
"""Follows the status, in its column, of runs whose events have yet to be added to memory."""
_REMEMBERABLE = frozenset({RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED})
"""The statuses that the mark may follow."""
_DELAYED = "queued delayed"
"""In the column of the status, of runs that start later. Neither a start of the server nor a count of queued runs reads
them."""
_TO_REMEMBER = """
    SELECT app_name, user_id, session_id, id, data, request FROM runs
    WHERE status IN ('succeeded unremembered', 'failed unremembered', 'cancelled unremembered') {and_in_shards}
    ORDER BY created_at
"""
_IS_INDEXED = """
    status IN ('queued', 'running', 'waiting', 'failed', 'failed unremembered', 'cancelled', 'cancelled unremembered')
"""
"""As the index `runs_by_status` has it, which databases use for queries with the same term."""
_IS_DELAYED = f"status = '{_DELAYED}'"
"""The same of the index `runs_delayed`."""

_WITH_ERRORS = (RunStatus.FAILED, RunStatus.CANCELLED)
_RUNS_READ = 200
"""Runs that are read at a time to find those with an error code, where the database can't compare it."""

_MAX_PARTS = 50
"""Apps of a list of runs that are looked up one by one; databases take a few hundred."""

_REMEMBERED = f"UPDATE runs SET status = replace(status, '{_MARK}', '') WHERE id = ?"


class SqlRunStore(RunStore):
    data_contains: ClassVar[str]
    """A term for `data` with a text in it, in the database's own SQL."""

    def __init__(self, database: SqliteDatabase | PostgresDatabase, *, audit_chains: int) -> None:
        """Takes ownership of `database`, which is closed with the store. audit_chains: see `SqlAuditStore`."""
        self._database = database
        self.schedules = SqlScheduleStore(database)
        self.audit = self._audit = SqlAuditStore(database, chains=audit_chains)
        self.feedback = SqlFeedbackStore(database)
        self.versions = SqlVersionStore(database)
        self.statistics = SqlStatisticsStore(database, wait_for_writes=self._wait_for_writes)
        self._unsaved_deliveries: dict[str, list[WebhookDelivery]] = {}
        """By run: messages to webhooks that the next record of the run takes along, since the last one was refused."""
        self._newest: Future[Any] | None = None
        self._closed = False

    def use_without_keys(self) -> None:
        """For programs that read only what isn't encrypted, such as the audit trail: they need no encryption keys."""
        self._database.holds_content = False

    def _queued(self, write: Future[Any]) -> Future[Any]:
        """The write, whose future may be dropped."""
        self._newest = write
        write.add_done_callback(_retrieve)
        return write

    def _new_deliveries(self, run: Run) -> list[WebhookDelivery]:
        """Returns the messages to store with a run that has webhooks. Called before the record is encoded: it notes the
        status in it."""
        deliveries = [*self._unsaved_deliveries.pop(run.id, ()), *new_deliveries(run)]
        if deliveries:
            self._unsaved_deliveries[run.id] = deliveries
        return deliveries

    def _note_deliveries(self, deliveries: Sequence[WebhookDelivery], write: Future[Any]) -> Future[Any]:
        """Returns the write of a run's record, after which the messages stored with it are known to be stored."""
        if deliveries:
            write.add_done_callback(partial(self._deliveries_written, deliveries))
        return write

    def _deliveries_written(self, deliveries: Sequence[WebhookDelivery], write: Future[Any]) -> None:
        run_id = deliveries[0].run_id or ""
        error = None if write.cancelled() else write.exception()
        if isinstance(error, StorageError):
            return  # the next write of the record has them
        stored = {delivery.id for delivery in deliveries}
        rest = [delivery for delivery in self._unsaved_deliveries.pop(run_id, ()) if delivery.id not in stored]
        if rest and error is None:
            self._unsaved_deliveries[run_id] = rest
        if error is None and self.added is not None:
            self.added(deliveries)

    async def get(self, run_id: str) -> Run | None:
        return _first(await self._select(_GET, run_id))

    async def find_by_idempotency_key(self, *, app_name: str, user_id: str, key: str) -> Run | None:
        rows = await self._database.fetch(_FIND, app_name, user_id, key)
        if not rows:
            return None
        run_id, data, request, digest = rows[0]
        run = self._run(run_id, data, request)
        run.idempotency_key = key
        if digest is not None:
            run.request_digest = self._codec.decode(digest, "idempotency_keys", app_name, user_id, key).decode()
        return run

    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        check_limit(limit)
        await self._wait_for_writes()
        found = await self._find_runs(where, page_position(page_token), limit)
        page = found[:limit]
        return ListRunsResponse(runs=page, next_page_token=next_page(page) if len(page) < len(found) else None)

    async def _find_runs(self, where: RunFilter, after: tuple[float, str] | None, limit: int | None) -> list[Run]:
        """The runs after a position, one more than `limit`. Where records are encrypted, error codes and
        versions are compared here.
        """
        if where.feedback_label is not None:
            label = label_of(self._codec, where.feedback_label)
            where = msgspec.structs.replace(where, feedback_label=label)
        if (where.error_code is None and where.app_version is None) or self._codec.is_plain:
            return await self._select(*_list_query(where, after, limit, self.data_contains))

        candidates = msgspec.structs.replace(where, error_code=None, app_version=None)
        if where.error_code is not None:
            wanted = _WITH_ERRORS if where.statuses is None else where.statuses
            candidates.statuses = [status for status in _WITH_ERRORS if status in wanted]
        found: list[Run] = []
        while True:
            runs = await self._select(*_list_query(candidates, after, _RUNS_READ, self.data_contains))
            found += [run for run in runs[:_RUNS_READ] if matches(run, where)]
            if len(runs) <= _RUNS_READ or (limit is not None and len(found) > limit):
                return found if limit is None else found[: limit + 1]
            after = runs[_RUNS_READ - 1].created_at, runs[_RUNS_READ - 1].id

    async def _wait_for_writes(self) -> None:
        """Waits for what is queued: a client that has read the end of a run finds it in the lists."""
        if self._newest is not None and not self._newest.done():
            await asyncio.wait([self._newest])

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        key = app_name, user_id, session_id
        await self._database.execute_all([(statement, key) for statement in DELETE_SESSION])

    async def save_push_config(self, config: PushConfig) -> None:
        await self._database.execute(SAVE_PUSH_CONFIG, *push_config_row(self._codec, config))

    async def list_push_configs(self, run_id: str) -> list[PushConfig]:
        rows = await self._database.fetch(_PUSH_CONFIGS, run_id)
        return [self._push_config(run_id, config_id, data) for config_id, data in rows]

    async def list_open_push_configs(self, shards: Shards | None = None) -> list[PushConfig]:
        rows = await self._rows_in(shards, _OPEN_PUSH_CONFIGS)
        return [self._push_config(*row[3:]) for row in rows]

    async def delete_push_config(self, run_id: str, config_id: str) -> None:
        await self._database.execute(DELETE_PUSH_CONFIG, run_id, config_id)

    async def add_delivery(self, delivery: WebhookDelivery) -> None:
        await self._database.execute(ADD_DELIVERY, *delivery_row(self._codec, delivery))

    async def update_delivery(self, delivery: WebhookDelivery) -> None:
        await self._database.execute(UPDATE_DELIVERY, *delivery_row(self._codec, delivery)[6:], delivery.id)

    async def get_delivery(self, delivery_id: str) -> WebhookDelivery | None:
        rows = await self._database.fetch(_DELIVERY, delivery_id)
        return self._delivery(delivery_id, rows[0][0]) if rows else None

    async def list_deliveries(
        self, *, app_name: str, webhook_id: str, run_id: str | None = None, limit: int = 100
    ) -> list[WebhookDelivery]:
        if run_id is None:
            rows = await self._database.fetch(_DELIVERIES.format(""), app_name, webhook_id, limit)
        else:
            query = _DELIVERIES.format(" AND run_id = ?")
            rows = await self._database.fetch(query, app_name, webhook_id, run_id, limit)
        return [self._delivery(delivery_id, data) for delivery_id, data in rows]

    async def list_pending_deliveries(self, shards: Shards | None = None) -> list[WebhookDelivery]:
        rows = await self._rows_in(shards, _PENDING_DELIVERIES)
        return sorted((self._delivery(*row[3:]) for row in rows), key=lambda delivery: delivery.number)

    async def delete_deliveries(self, *, run_id: str, webhook_id: str) -> None:
        await self._database.execute(DELETE_DELIVERIES, run_id, webhook_id)

    async def prune_deliveries(self, *, app_name: str, webhook_id: str, keep: int) -> None:
        await self._database.execute(_PRUNE_DELIVERIES, app_name, webhook_id, app_name, webhook_id, keep)

    async def save_app_webhook(self, app_name: str, webhook: Webhook) -> None:
        data = self._codec.encode(wire.encode(webhook), "app_webhooks", app_name, webhook.id)
        await self._database.execute(_SAVE_APP_WEBHOOK, app_name, webhook.id, data)

    async def list_app_webhooks(self) -> list[tuple[str, Webhook]]:
        rows = await self._database.fetch(_APP_WEBHOOKS)
        return [
            (app_name, _decode_webhook(self._codec.decode(data, "app_webhooks", app_name, webhook_id)))
            for app_name, webhook_id, data in rows
        ]

    async def delete_app_webhook(self, app_name: str, webhook_id: str) -> bool:
        async def write(transaction: Fetches) -> bool:
            return bool(await transaction.fetch(_DELETE_APP_WEBHOOK, app_name, webhook_id))

        return await self._database.transact(write)

    def save_wake_up(self, run: Run, at: float) -> Future[None]:
        return self._queued(self._database.transact(lambda transaction: transaction.fetch(SAVE_WAKE_UP, run.id, at)))

    async def move_wake_up(self, run_id: str, at: float, *, to: float | None) -> None:
        if to is None:
            await self._database.execute(_DELETE_WAKE_UP_AT, run_id, at)
        else:
            await self._database.execute(_MOVE_WAKE_UP, to, run_id, at)

    async def delete_wake_up(self, run_id: str) -> None:
        await self._database.execute(_DELETE_WAKE_UP, run_id)

    async def next_wake_ups(self, limit: int) -> list[tuple[float, str]]:
        return [(at, run_id) for at, run_id in await self._database.fetch(_NEXT_WAKE_UPS, limit)]

    async def save_request(self, request: HumanRequest, *, audit: Sequence[AuditEntry] = ()) -> None:
        async def write(transaction: Fetches) -> None:
            await write_request(transaction, self._codec, request)
            if audit:
                await self._audit.write(transaction, audit)

        await self._database.transact(write, then=self._audit.confirming(audit))

    async def get_request(self, request_id: str) -> HumanRequest | None:
        await self._wait_for_writes()
        rows = await self._database.fetch(GET_REQUEST, request_id)
        return read_request(self._codec, *rows[0]) if rows else None

    async def list_requests(
        self, where: RequestFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRequestsResponse:
        check_limit(limit)
        await self._wait_for_writes()
        rows = await self._database.fetch(*list_query(where, page_position(page_token), limit))
        found = [read_request(self._codec, *row) for row in rows]
        page = found[:limit]
        return ListRequestsResponse(requests=page, next_page_token=next_page(page) if len(page) < len(found) else None)

    async def count_requests(self, *, open_at: float) -> Mapping[str, int]:
        return dict(await self._database.fetch(COUNT_REQUESTS, open_at - EXPIRES_AFTER_SECONDS))

    async def list_unfinished(self, shards: Shards | None = None) -> list[Run]:
        return [self._run(*row[3:]) for row in await self._rows_in(shards, _UNFINISHED)]

    async def list_to_remember(self, shards: Shards | None = None) -> list[Run]:
        return [self._run(*row[3:]) for row in await self._rows_in(shards, _TO_REMEMBER)]

    async def _rows_in(self, shards: Shards | None, query: str) -> list[tuple[Any, ...]]:
        """Rows of a query for the sessions of shards, or for all. They begin with app, user and session."""
        rows = await self._database.fetch(query.format(and_in_shards=""))
        return [row for row in rows if shards is None or shards.include(SessionKey(*row[:3]))]

    def remembered(self, run_id: str) -> None:
        self._queued(self._database.transact(lambda transaction: transaction.fetch(_REMEMBERED, run_id)))

    async def _select(self, query: str, *arguments: str | float | Sequence[str]) -> list[Run]:
        rows = await self._database.fetch(query, *arguments)
        return [self._run(*row) for row in rows]

    def _run(self, run_id: str, data: str, request: str | None) -> Run:
        run = run_of(self._codec, run_id, data)
        if request is not None:  # rows of earlier releases have it in `data`
            run.request = _decode_request(self._codec.decode(request, "runs.request", run_id))
        return run

    def _push_config(self, run_id: str, config_id: str, data: str) -> PushConfig:
        return _decode_push_config(self._codec.decode(data, "webhooks", run_id, config_id))

    def _delivery(self, delivery_id: str, data: str) -> WebhookDelivery:
        return _decode_delivery(self._codec.decode(data, "webhook_deliveries", delivery_id))

    @property
    def _codec(self) -> Codec:
        return self._database.codec

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._database.close()


def row_of(codec: Codec, run: Run, *, with_request: bool = True, is_to_remember: bool = False) -> RunRow:
    data = codec.encode(wire.encode(msgspec.structs.replace(run, request=None)), "runs", run.id)
    request: str | None = None
    if with_request and run.request is not None:
        request = codec.encode(wire.encode(run.request), "runs.request", run.id)
    if run.is_delayed:
        status = _DELAYED
    else:
        is_marked = is_to_remember and run.status in _REMEMBERABLE  # it may continue while it is added to memory
        status = run.status.value + (_MARK if is_marked else "")
    return run.id, run.app_name, run.user_id, run.session_id, status, run.created_at, data, request


def run_of(codec: Codec, run_id: str, data: str) -> Run:
    """A record without its request."""
    return _decode_run(codec.decode(data, "runs", run_id))


def push_config_row(codec: Codec, config: PushConfig) -> tuple[str, str, str, int]:
    data = codec.encode(wire.encode(config), "webhooks", config.run_id, config.id)
    return config.run_id, config.id, data, int(config.is_over)


def delivery_row(codec: Codec, delivery: WebhookDelivery) -> tuple[str, str, str, str, float, int, float | None, str]:
    return (
        delivery.id,
        delivery.run_id or "",
        delivery.app_name,
        delivery.webhook_id,
        delivery.created_at,
        delivery.number,
        delivery.next_try_at,
        codec.encode(wire.encode(delivery), "webhook_deliveries", delivery.id),
    )


def encoded_digest(codec: Codec, run: Run) -> str | None:
    """The digest of the run's request as it is stored with the idempotency key."""
    if run.request_digest is None:
        return None
    place = "idempotency_keys", run.app_name, run.user_id, run.idempotency_key
    return codec.encode(run.request_digest.encode(), *place)


def _retrieve(future: Future[Any]) -> None:
    """Marks the exception as seen: the future may be dropped."""
    if not future.cancelled():
        future.exception()


def _first(runs: list[Run]) -> Run | None:
    return runs[0] if runs else None


def _list_query(
    where: RunFilter, after: tuple[float, str] | None, limit: int | None, data_contains: str
) -> tuple[str, *tuple[str | float, ...]]:
    """Returns a query for the runs after a position, one more than `limit`, newest first; and its arguments.

    For each selected app or status, it reads a page by an index, regardless of the number of other and older runs.
    """
    terms, arguments = _conditions(where, after)
    if where.error_code is not None:
        terms.append(data_contains)
        arguments.append(f'"error":{{"code":{wire.encode(where.error_code).decode()},')  # as `Run` is encoded
        statuses = [one for one in _WITH_ERRORS if where.statuses is None or one in where.statuses]
        where = msgspec.structs.replace(where, statuses=statuses)
    if where.app_version is not None:
        terms.append(data_contains)
        arguments.append(f'"appVersion":{wire.encode(where.app_version).decode()}')  # as `Run` is encoded
    order = "ORDER BY created_at DESC, id DESC"
    if limit is not None:
        order += f" LIMIT {limit + 1}"

    judged_app = app_of_feedback(where)
    if judged_app is not None:
        # The feedback is read first, by which the runs are found: SQLite keeps the order of a cross join.
        judged, of_feedback = judged_runs(judged_app, where)
        [(first, own)] = _parts(where)
        chosen = " AND ".join(["runs.id = judged.run_id", *first, *terms])
        query = f"SELECT id, data, request FROM ({judged}) AS judged CROSS JOIN runs WHERE {chosen} {order}"
        return query, *of_feedback, *own, *arguments

    parts: list[str] = []
    values: list[str | float] = []
    for first, own in _parts(where):
        chosen = " AND ".join([*first, *terms])
        parts.append(f"SELECT created_at, id, data, request FROM runs {f'WHERE {chosen}' if chosen else ''} {order}")
        values += [*own, *arguments]
    if len(parts) > 1:
        parts = [f"SELECT * FROM ({part}) AS part" for part in parts]
    return f"SELECT id, data, request FROM ({' UNION ALL '.join(parts)}) AS found {order}", *values


def _parts(where: RunFilter) -> list[tuple[list[str], list[str]]]:
    """Returns terms with their arguments, exactly one of which is true for each selected run."""
    statuses: list[str] | None = None
    if where.statuses is not None:
        statuses = [status + mark for status in dict.fromkeys(where.statuses) for mark in ("", _MARK)]
        if RunStatus.QUEUED in where.statuses:
            statuses.append(_DELAYED)
    apps = None if where.app_names is None else list(dict.fromkeys(where.app_names))
    of_apps = [] if apps is None else [f"app_name IN ({', '.join('?' * len(apps)) or 'NULL'})"]
    of_statuses = [] if statuses is None else [f"status IN ({', '.join('?' * len(statuses)) or 'NULL'})"]

    has_own_index = where.user_id is not None or where.session_id is not None or where.feedback is not None
    if statuses and not has_own_index and RunStatus.SUCCEEDED not in (where.statuses or ()):
        return [
            ([_IS_DELAYED if status == _DELAYED else _IS_INDEXED, "status = ?", *of_apps], [status, *(apps or ())])
            for status in statuses
        ]
    if apps and len(apps) <= _MAX_PARTS and not has_own_index:
        return [(["app_name = ?", *of_statuses], [app, *(statuses or ())]) for app in apps]
    return [([*of_apps, *of_statuses], [*(apps or ()), *(statuses or ())])]


def _conditions(where: RunFilter, after: tuple[float, str] | None) -> tuple[list[str], list[str | float]]:
    """Returns the terms of a WHERE clause for the fields with one value, and their arguments."""
    terms: list[str] = []
    arguments: list[str | float] = []
    for term, value in (
        ("user_id = ?", where.user_id),
        ("session_id = ?", where.session_id),
        ("created_at >= ?", where.created_from),
        ("created_at < ?", where.created_before),
    ):
        if value is not None:
            terms.append(term)
            arguments.append(value)
    if after is not None:
        terms.append("(created_at, id) < (?, ?)")
        arguments += after
    return terms, arguments
