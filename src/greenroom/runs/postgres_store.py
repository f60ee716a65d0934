"""Run records in a PostgreSQL database, the same as the sessions' or another."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from greenroom.audit.sql import POSTGRES_CHAINS
from greenroom.encryption.codec import Codec
from greenroom.errors import IdempotencyConflict, OwnershipLost, StoreInUse
from greenroom.feedback.postgres import PostgresFeedbackStore
from greenroom.postgres.connection import Connection
from greenroom.postgres.database import Database, Transaction
from greenroom.postgres.notifications import Notifications
from greenroom.postgres.numbered import numbered
from greenroom.postgres.ownership import (
    IS_OWNER,
    IS_OWNER_OF_ONE,
    Fence,
    OwnedShards,
    check,
    columns_of,
    lost_of,
    parameters_of,
)
from greenroom.postgres.shard_owner import ShardOwner
from greenroom.records.audit import AuditEntry
from greenroom.records.inbox import HumanRequest, RequestChanges
from greenroom.records.replica import ReplicaStatus
from greenroom.records.run import PushConfig, Run
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards
from greenroom.records.webhook_delivery import WebhookDelivery
from greenroom.runs.postgres_changes import PostgresRunChanges
from greenroom.runs.postgres_counts import PostgresRunCounts
from greenroom.runs.postgres_load import DatabaseLoad, list_replicas
from greenroom.runs.postgres_replicas import ReplicaTable
from greenroom.runs.sql_requests import write_changes, write_request
from greenroom.runs.sql_store import (
    ADD_DELIVERY,
    DELETE_DELIVERIES,
    DELETE_PUSH_CONFIG,
    DELETE_SESSION,
    KEY_HOLDER,
    SAVE_KEY,
    SAVE_PUSH_CONFIG,
    SAVE_WAKE_UP,
    UPDATE_DELIVERY,
    RunRow,
    SqlRunStore,
    delivery_row,
    encoded_digest,
    push_config_row,
    row_of,
    run_of,
)
from greenroom.runs.store import Changed, StoreLoad
from greenroom.statistics.postgres import PostgresStatisticsStore
from greenroom.statistics.rollups import write_entry
from greenroom.statistics.run_figures import RunFigures

_OVER_EARLIER = """
    ON CONFLICT (id) DO UPDATE
    SET status = excluded.status, data = excluded.data, request = coalesce(excluded.request, runs.request)
"""
_SAVE = f"""
    INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data, request)
    SELECT * FROM
        unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::float8[], $7::text[], $8::text[])
    WHERE {IS_OWNER.format(shards="$9", epochs="$10")}
    ORDER BY 1
    {_OVER_EARLIER}
"""
_SAVE_ONE = f"""
    INSERT INTO runs (id, app_name, user_id, session_id, status, created_at, data, request)
    SELECT $1, $2, $3, $4, $5, $6::float8, $7, $8
    WHERE {IS_OWNER_OF_ONE.format(shard="$9", epoch="$10")}
    {_OVER_EARLIER}
"""
_ADD_ENTRY = """
    WITH saved AS ({save} RETURNING 1)
    INSERT INTO statistics_journal (data) SELECT ${entry} WHERE EXISTS (SELECT FROM saved)
"""
_SAVE_COUNTED = _ADD_ENTRY.format(save=_SAVE, entry=11)
_SAVE_ONE_COUNTED = _ADD_ENTRY.format(save=_SAVE_ONE, entry=11)
_COUNTED_BEFORE = "SELECT id, data FROM runs WHERE id = ANY ($1::text[]) FOR UPDATE"
_AND_IN_SHARDS = "AND shard_of(app_name, user_id, session_id) = ANY (?::smallint[])"
_NEXT_WAKE_UPS = """
    SELECT at, run_id FROM wake_ups JOIN runs ON runs.id = run_id
    WHERE shard_of(app_name, user_id, session_id) = ANY (?::smallint[])
    ORDER BY at LIMIT ?
"""
_NOTHING_SAVED = "INSERT 0 0"
_GET_MANY = "SELECT id, data, request FROM runs WHERE id = ANY (?::text[])"
_SESSION_OF_RUN = "SELECT app_name, user_id, session_id FROM runs WHERE id = $1"


class FencedRun(NamedTuple):
    row: RunRow
    fence: Fence | None
    """None for a program that owns no shards."""
    figures: Sequence[RunFigures] = ()


class SaveRuns:
    """Writes the latest row of each run, with the latest request in its rows, and adds their figures to the statistics
    together. Results are None, or OwnershipLost.
    """

    def __init__(self, codec: Callable[[], Codec]) -> None:
        self._codec = codec

    async def write(self, connection: Connection, rows: Sequence[FencedRun]) -> Sequence[OwnershipLost | None]:
        latest: dict[str, RunRow] = {}
        for row, _, _ in rows:
            earlier = latest.get(row[0])
            latest[row[0]] = (*row[:-1], earlier[-1]) if earlier is not None and row[-1] is None else row
        fences = [fenced.fence for fenced in rows]
        figures = [one for fenced in rows for one in fenced.figures]
        entry = await self._entry(connection, figures) if figures else None
        if len(rows) == 1:
            save = _SAVE_ONE
            counting = _SAVE_ONE_COUNTED
            arguments = (*rows[0].row, *parameters_of(fences[0]))
        else:
            save = _SAVE
            counting = _SAVE_COUNTED
            arguments = (*map(list, zip(*latest.values(), strict=True)), *columns_of(fences))
        if entry is None:
            saved = await connection.execute(save, *arguments)
        else:
            saved = await connection.execute(counting, *arguments, entry)
        if saved != _NOTHING_SAVED:
            return [None] * len(rows)

        lost = await lost_of(connection, fences)
        owned_rows = [fenced for fenced in rows if fenced.fence not in lost]
        if owned_rows:
            await self.write(connection, owned_rows)
        return [fence.refuse() if fence in lost and fence is not None else None for fence in fences]

    async def _entry(self, connection: Connection, figures: Sequence[RunFigures]) -> str | None:
        """The journal's entry for figures, without those of an earlier try that was stored though the connection was
        lost.
        """
        if any(one.is_attempted for one in figures):
            counted = await connection.fetch(_COUNTED_BEFORE, list({one.run_id for one in figures}))
            numbers = {run_id: run_of(self._codec(), run_id, data).counted for run_id, data in counted}
            figures = [one for one in figures if one.number > numbers.get(one.run_id, 0)]
        for one in figures:
            one.is_attempted = True
        return write_entry(figures) if figures else None


class PostgresRunStore(SqlRunStore):
    """With the URI of a `PostgresSessionService`, this store and the service write in one order and share commits."""

    data_contains = "strpos(data, ?) > 0"

    def __init__(self, uri: str, *, address: str | None = None) -> None:
        """Connects on the first call. Raises MissingExtra.

        address: the URL at which other servers on the database reach this one; None if it shares it with none.
        """
        self._postgres = Database.open(uri)
        self._save_runs = self._postgres.companion(SaveRuns, lambda: SaveRuns(lambda: self._postgres.codec))
        super().__init__(self._postgres, audit_chains=POSTGRES_CHAINS)
        self.feedback = PostgresFeedbackStore(self._postgres)
        self.statistics = PostgresStatisticsStore(self._postgres, wait_for_writes=self._wait_for_writes)
        self._address = address
        self._owner: ShardOwner | None = None
        self._replicas: ReplicaTable | None = None
        self._counts: PostgresRunCounts | None = None
        self._notifications: Notifications | None = None
        self._changes: PostgresRunChanges | None = None
        """None, as the former, where no other server uses the database."""

    @property
    def replicas(self) -> ReplicaTable | None:
        return self._replicas

    @property
    def counts(self) -> PostgresRunCounts | None:
        return self._counts

    @property
    def ownership(self) -> OwnedShards:
        return self._postgres.owned_shards

    async def _rows_in(self, shards: Shards | None, query: str) -> list[tuple[Any, ...]]:
        if shards is None:
            return await super()._rows_in(None, query)
        return await self._postgres.fetch(query.format(and_in_shards=_AND_IN_SHARDS), sorted(shards))

    def save(
        self,
        run: Run,
        *,
        is_to_remember: bool = False,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
        figures: Sequence[RunFigures] = (),
    ) -> Future[None]:
        try:
            fence = self._fence(run.session_key)
        except OwnershipLost as error:
            return self._queued(_failed(error))

        deliveries = self._new_deliveries(run) if run.webhooks else ()
        fenced = FencedRun(row_of(self._postgres.codec, run, is_to_remember=is_to_remember), fence, figures)
        if run.idempotency_key is None and not deliveries and requests is None and not run.is_delayed and not audit:
            return self._saving(run, self._postgres.submit_row(self._save_runs, fenced))
        has_new_key = run.idempotency_key is not None
        saving = self._save_with(run, fenced, deliveries, has_new_key=has_new_key, requests=requests, audit=audit)
        return self._saving(run, saving)

    def save_progress(self, run: Run) -> Future[None]:
        try:
            fence = self._fence(run.session_key)
        except OwnershipLost as error:
            return self._queued(_failed(error))

        deliveries = self._new_deliveries(run) if run.webhooks else ()
        fenced = FencedRun(row_of(self._postgres.codec, run, with_request=False), fence)
        if not deliveries:
            return self._saving(run, self._postgres.submit_row(self._save_runs, fenced))
        return self._saving(run, self._save_with(run, fenced, deliveries, has_new_key=False))

    def _save_with(
        self,
        run: Run,
        fenced: FencedRun,
        deliveries: Sequence[WebhookDelivery],
        *,
        has_new_key: bool,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
    ) -> Future[None]:
        """Writes a record in one transaction with its idempotency key, its start time, messages to webhooks, requests
        to people, entries of the audit trail, and figures.
        """
        key = run.idempotency_key if has_new_key else None
        scoped_key = run.app_name, run.user_id, key
        run_id = run.id
        codec = self._postgres.codec
        digest = encoded_digest(codec, run) if key is not None else None
        start_at = run.start_at if run.is_delayed else None

        async def apply(connection: Connection) -> None:
            if key is not None:
                await connection.execute(numbered(SAVE_KEY), *scoped_key, run_id, digest)
                if await connection.fetchval(numbered(KEY_HOLDER), *scoped_key) != run_id:
                    raise IdempotencyConflict(key)
            (refused,) = await self._save_runs.write(connection, [fenced])
            if refused is not None:
                raise refused
            if start_at is not None:
                await connection.execute(numbered(SAVE_WAKE_UP), run_id, start_at)
            for delivery in deliveries:
                await connection.execute(numbered(ADD_DELIVERY), *delivery_row(codec, delivery))
            if requests is not None:
                await write_changes(Transaction(connection), codec, requests)
            if audit:
                await self._audit.write(Transaction(connection), audit)

        return self._note_deliveries(deliveries, self._postgres.submit(apply, then=self._audit.confirming(audit)))

    async def update_delivery(self, delivery: WebhookDelivery) -> None:
        key = delivery.session_key
        fence = self._fence(key) if key is not None else None

        async def apply(connection: Connection) -> None:
            await check(fence, connection)
            await connection.execute(
                numbered(UPDATE_DELIVERY), *delivery_row(self._postgres.codec, delivery)[6:], delivery.id
            )

        await self._postgres.submit(apply)

    def _saving(self, run: Run, future: Future[None]) -> Future[None]:
        if self._changes is not None and self._changes.is_watched:
            self._changes.note(run.id, future)
        return self._queued(future)

    async def follow(self, changed: Changed) -> Callable[[], None]:
        if self._changes is None:
            return await super().follow(changed)
        return await self._changes.follow(changed)

    def _fence(self, key: SessionKey) -> Fence | None:
        """Raises OwnershipLost."""
        return self.ownership.fence(key, self.ownership.epochs)

    def save_wake_up(self, run: Run, at: float) -> Future[None]:
        try:
            fence = self._fence(run.session_key)
        except OwnershipLost as error:
            return self._queued(_failed(error))

        async def apply(connection: Connection) -> None:
            await check(fence, connection)
            await connection.execute(numbered(SAVE_WAKE_UP), run.id, at)

        return self._queued(self._postgres.submit(apply))

    async def save_request(self, request: HumanRequest, *, audit: Sequence[AuditEntry] = ()) -> None:
        fence = self._fence(request.session_key)

        async def apply(connection: Connection) -> None:
            await check(fence, connection)
            await write_request(Transaction(connection), self._postgres.codec, request)
            if audit:
                await self._audit.write(Transaction(connection), audit)

        saving = self._postgres.submit(apply, then=self._audit.confirming(audit))
        if self._changes is not None and self._changes.is_watched:
            self._changes.note(request.run_id, saving)
        await saving

    async def next_wake_ups(self, limit: int) -> list[tuple[float, str]]:
        epochs = self.ownership.epochs
        if epochs is None:
            return await super().next_wake_ups(limit)
        return [(at, run_id) for at, run_id in await self._postgres.fetch(_NEXT_WAKE_UPS, sorted(epochs), limit)]

    async def save_push_config(self, config: PushConfig) -> None:
        await self._execute_of_run(config.run_id, SAVE_PUSH_CONFIG, *push_config_row(self._postgres.codec, config))

    async def delete_push_config(self, run_id: str, config_id: str) -> None:
        await self._execute_of_run(run_id, DELETE_PUSH_CONFIG, run_id, config_id)

    async def delete_deliveries(self, *, run_id: str, webhook_id: str) -> None:
        await self._execute_of_run(run_id, DELETE_DELIVERIES, run_id, webhook_id)

    async def _execute_of_run(self, run_id: str, statement: str, *arguments: str | int) -> None:
        """Raises OwnershipLost."""
        epochs = self.ownership.epochs

        async def apply(connection: Connection) -> None:
            key = await connection.fetchrow(_SESSION_OF_RUN, run_id)
            if key is not None:
                await check(self.ownership.fence(SessionKey(*key), epochs), connection)
            await connection.execute(numbered(statement), *arguments)

        await self._postgres.submit(apply)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        key = SessionKey(app_name, user_id, session_id)
        fence = self._fence(key)

        async def apply(connection: Connection) -> None:
            await check(fence, connection)
            for statement in DELETE_SESSION:
                await connection.execute(numbered(statement), *key)

        await self._postgres.submit(apply)

    async def lock(self, *, wait_seconds: float) -> None:
        """While another server holds the lock, all writes for sessions by this process raise OwnershipLost."""
        owner = self._postgres.companion(
            ShardOwner,
            lambda: ShardOwner(self._postgres, is_exclusive=self._address is None, address=self._address),
        )
        until = time.monotonic() + wait_seconds
        while not await owner.acquire():
            if time.monotonic() >= until:
                raise StoreInUse(self._postgres.name, None)
            await asyncio.sleep(0.05)
        self._owner = owner
        if self._address is not None:
            self._counts = PostgresRunCounts(self._postgres, replica_id=owner.replica_id)
            self._notifications = Notifications(self._postgres)
            self._replicas = ReplicaTable(self._postgres, own_id=owner.replica_id, messages=self._notifications)
            self._changes = PostgresRunChanges(
                self._postgres, self._notifications, lambda ids: self._select(_GET_MANY, ids)
            )

    async def load(self) -> StoreLoad | None:
        if self._owner is None:
            return None
        load = self._postgres.companion(DatabaseLoad, lambda: DatabaseLoad(self._postgres))
        return StoreLoad(
            replica_id=self._owner.replica_id,
            shards=len(self.ownership.owned()),
            runs=await load.read(),
            database_bytes=await load.read_bytes(),
        )

    async def list_replicas(self, app_names: Collection[str] | None) -> list[ReplicaStatus]:
        return await list_replicas(self._postgres, app_names)

    async def drain(self) -> bool:
        return self._owner is not None and await self._owner.drain()

    async def close(self) -> None:
        if self._counts is not None:
            await self._counts.close()
            self._counts = None
        if self._changes is not None:
            await self._changes.close()
            self._changes = None
        if self._notifications is not None:
            await self._notifications.close()
            self._notifications = None
        if self._owner is not None:
            await self._owner.release()
            self._owner = None
            self._replicas = None
        await super().close()


def _failed(error: OwnershipLost) -> Future[None]:
    future: Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(error)
    return future
