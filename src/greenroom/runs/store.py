"""The contract of a store of run records."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from greenroom.audit.store import AuditStore
from greenroom.errors import InvalidRequest
from greenroom.feedback.store import FeedbackStore
from greenroom.records import wire
from greenroom.records.audit import AuditEntry
from greenroom.records.inbox import HumanRequest, ListRequestsResponse, RequestChanges, RequestFilter
from greenroom.records.replica import ReplicaStatus
from greenroom.records.run import ListRunsResponse, PushConfig, Run, RunFilter, Webhook
from greenroom.records.shard import Shards
from greenroom.records.webhook_delivery import WebhookDelivery
from greenroom.runs.limits import RunCounts
from greenroom.runs.ownership import Ownership, Replicas
from greenroom.schedules.store import ScheduleStore
from greenroom.statistics.run_figures import RunFigures
from greenroom.statistics.store import StatisticsStore
from greenroom.versions.store import VersionStore

Changed: TypeAlias = Callable[[Sequence[Run] | None], None]
"""Takes the records of runs that other servers have changed; None when some may have been missed."""


class RunLoad(NamedTuple):
    """The numbers of running runs, and of queued runs that wait for an earlier run of their session."""

    running: int
    queued: int


class StoreLoad(NamedTuple):
    """The unfinished runs of all servers on a store, and this one's share of the sessions."""

    replica_id: str
    shards: int
    """The number of shards that this server owns."""

    runs: Mapping[str, RunLoad]
    """Of all servers, by app; only apps that have some."""

    database_bytes: int
    """The size of the database, a minute old at most."""


class RunStore(ABC):
    """Keeps the record of every run, beside the session store and, where that is a database, in it.

    Records are written in the order of the calls, and in order with the session store's appends on the same database:
    a record saved before an event was appended is never missing when the event is there.

    Where servers share a store, writes for sessions that another one owns are refused with OwnershipLost.
    """

    @property
    def ownership(self) -> Ownership | None:
        """The ownership of the sessions whose runs are stored; None if one process owns all sessions."""
        return None

    @property
    def replicas(self) -> Replicas | None:
        """The servers that share the store, from `lock` to `close`; None in a store of which one process owns all."""
        return None

    @property
    def counts(self) -> RunCounts | None:
        """Counts of runs over all servers that share the store, from `lock` to `close`; None if there are no others."""
        return None

    schedules: ScheduleStore
    """The schedules of runs, which are stored beside them."""

    audit: AuditStore
    """The audit trail, which is stored beside the runs."""
    feedback: FeedbackStore
    """Feedback on events of runs, which is deleted with their session."""
    versions: VersionStore
    """Published versions of apps, which are stored beside the runs."""

    statistics: StatisticsStore
    """Sums of figures of runs, which outlive them."""

    added: Callable[[Sequence[WebhookDelivery]], None] | None = None
    """Called in the event loop when messages to webhooks are stored, which `save` and `save_progress` do."""

    @abstractmethod
    def save(
        self,
        run: Run,
        *,
        is_to_remember: bool = False,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
        figures: Sequence[RunFigures] = (),
    ) -> asyncio.Future[None]:
        """Writes the record as it is now, over an earlier one. Queued at once; the future is done when it is stored.

        In the same transaction, it stores the messages about the run's status that its webhooks receive, the changes of
        its requests to people, the time of a delayed run as its wake-up, entries of the audit trail, and what the run
        adds to the statistics, once however often figures are saved.
        The future may be dropped. is_to_remember: marks an ended run for `list_to_remember`, until `remembered`.
        """

    def save_progress(self, run: Run) -> asyncio.Future[None]:
        """Like `save`, for a run that was saved before with the same request, which need not be written again."""
        return self.save(run)

    @abstractmethod
    async def get(self, run_id: str) -> Run | None: ...

    @abstractmethod
    async def find_by_idempotency_key(self, *, app_name: str, user_id: str, key: str) -> Run | None:
        """Returns the current record of the run that was saved with this key, with the key and digest of that request.

        A run has one key for the request that started it, and one for each answer that continued it.
        """

    @abstractmethod
    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        """Runs, newest first; ties by id, the greatest first.

        limit: size of a page; `next_page_token` names the next one. None means all. Raises InvalidRequest, also for a
        filter by feedback that names no app.
        """

    @abstractmethod
    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes the records of a session's runs, with their idempotency keys and what is sent about them."""

    @abstractmethod
    async def save_push_config(self, config: PushConfig) -> None:
        """Stores a receiver of push notifications; replaces an earlier one of the run with this id.

        It is on disk when this returns.
        """

    @abstractmethod
    async def list_push_configs(self, run_id: str) -> list[PushConfig]:
        """Returns the receivers of a run by id."""

    @abstractmethod
    async def list_open_push_configs(self, shards: Shards | None = None) -> list[PushConfig]:
        """Returns the receivers of all runs that are not over. shards: only of their sessions."""

    @abstractmethod
    async def delete_push_config(self, run_id: str, config_id: str) -> None:
        """Deletes a receiver; does nothing when there is none."""

    @abstractmethod
    async def add_delivery(self, delivery: WebhookDelivery) -> None:
        """Stores a message that concerns no change of a run's status."""

    @abstractmethod
    async def update_delivery(self, delivery: WebhookDelivery) -> None:
        """Stores the tries of a message; does nothing if it was deleted."""

    @abstractmethod
    async def get_delivery(self, delivery_id: str) -> WebhookDelivery | None: ...

    @abstractmethod
    async def list_deliveries(
        self, *, app_name: str, webhook_id: str, run_id: str | None = None, limit: int = 100
    ) -> list[WebhookDelivery]:
        """Messages to a webhook of an app or, with `run_id`, of a run, newest first."""

    @abstractmethod
    async def list_pending_deliveries(self, shards: Shards | None = None) -> list[WebhookDelivery]:
        """Messages to all webhooks that are to be sent, those of a run to a webhook in their order.

        shards: only about runs of their sessions.
        """

    @abstractmethod
    async def delete_deliveries(self, *, run_id: str, webhook_id: str) -> None:
        """Deletes all messages of a run to a webhook."""

    @abstractmethod
    async def prune_deliveries(self, *, app_name: str, webhook_id: str, keep: int) -> None:
        """Deletes the oldest messages to a webhook that aren't pending, but the newest `keep` of all messages."""

    @abstractmethod
    async def save_app_webhook(self, app_name: str, webhook: Webhook) -> None:
        """Stores a webhook of an app, over an earlier one with its id. It is on disk when this returns."""

    @abstractmethod
    async def list_app_webhooks(self) -> list[tuple[str, Webhook]]:
        """The stored webhooks of all apps, each with the name of its app, by name and id."""

    @abstractmethod
    async def delete_app_webhook(self, app_name: str, webhook_id: str) -> bool:
        """Returns False when there is none."""

    @abstractmethod
    def save_wake_up(self, run: Run, at: float) -> asyncio.Future[None]:
        """Notes the time (Unix seconds) at which a waiting run is to be looked at, in place of an earlier one. Queued,
        as `save` is.
        """

    @abstractmethod
    async def move_wake_up(self, run_id: str, at: float, *, to: float | None) -> None:
        """Changes the time of the note, or deletes it, unless it has another time than `at` now."""

    @abstractmethod
    async def delete_wake_up(self, run_id: str) -> None:
        """Deletes the note of a run; does nothing when there is none."""

    @abstractmethod
    async def next_wake_ups(self, limit: int) -> list[tuple[float, str]]:
        """The earliest times, each with the id of its run, of the sessions that this process owns."""

    @abstractmethod
    async def save_request(self, request: HumanRequest, *, audit: Sequence[AuditEntry] = ()) -> None:
        """Stores a request to people, over an earlier state of it, with entries of the audit trail.

        Both are on disk when this returns.
        """

    @abstractmethod
    async def get_request(self, request_id: str) -> HumanRequest | None: ...

    @abstractmethod
    async def list_requests(
        self, where: RequestFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRequestsResponse:
        """Requests of all runs, newest first, ties by id; paged as `list_runs` is. Raises InvalidRequest."""

    @abstractmethod
    async def count_requests(self, *, open_at: float) -> Mapping[str, int]:
        """The number of requests by app that are open at a time, in Unix seconds; only apps that have some."""

    @abstractmethod
    async def list_unfinished(self, shards: Shards | None = None) -> list[Run]:
        """Returns all queued and running runs, oldest first, but delayed ones. At start-up, these were interrupted by
        a crash.

        shards: only of their sessions.
        """

    async def list_to_remember(self, shards: Shards | None = None) -> list[Run]:
        """Ended runs that a crash left with the mark, oldest first. None in a store that no crash survives.

        shards: only of their sessions.
        """
        return []

    def remembered(self, run_id: str) -> None:
        """Removes the mark. Queued, as `save` is."""

    async def follow(self, changed: Changed) -> Callable[[], None]:
        """Calls `changed` with the changes by other servers, from now on, within half a second. Returns a function that
        ends it.

        One at a time. A store that one server has for itself never calls it.
        """
        return _nothing

    async def load(self) -> StoreLoad | None:
        """The unfinished runs of all servers, a second old at most; None before `lock`, and in a store that only one
        server can use. Raises StorageError.
        """
        return None

    async def list_replicas(self, app_names: Collection[str] | None) -> list[ReplicaStatus] | None:
        """The servers that use the store; None for a store that doesn't know them. Works without `lock`.

        app_names: only runs of these apps count; None: of all. Raises StorageError.
        """
        return None

    async def lock(self, *, wait_seconds: float) -> None:
        """Makes this process the only server on the store until it is closed, or the process ends.

        Other processes may still read, and append to sessions. Does nothing for a store in memory.
        Raises StoreInUse when another process has held it for `wait_seconds`.
        """

    async def drain(self) -> bool:
        """Hands the sessions over to the other servers on the store: those without work at once, the others when they
        have none any more. This process takes no others until it is closed.

        Returns True when it has none left, and False when no other server runs: then it keeps them.
        """
        return False

    async def close(self) -> None:
        """Releases the database."""


def _nothing() -> None:
    """Ends nothing."""


def next_page(page: Sequence[Run] | Sequence[HumanRequest]) -> str:
    """The token of the next page."""
    return wire.write_page_token(page[-1].created_at, page[-1].id)


def page_position(page_token: str | None) -> tuple[float, str] | None:
    """Creation time and id of the last record of the previous page. Raises InvalidRequest."""
    if not page_token:
        return None
    time, (record_id,) = wire.read_page_token(page_token, keys=1)
    return time, record_id


def app_of_feedback(where: RunFilter) -> str | None:
    """The app in whose feedback a filter looks; None for a filter without feedback. Raises InvalidRequest."""
    if where.feedback is None:
        if where.feedback_label is None and where.min_score is None and where.max_score is None:
            return None
        raise InvalidRequest("A score or label needs the name of the feedback", location=("query", "feedback"))
    if where.app_names is None or len(where.app_names) != 1:
        raise InvalidRequest("Runs are filtered by feedback in one app", location=("query", "app_name"))
    return where.app_names[0]


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        raise InvalidRequest("limit must be at least 1", location=("query", "limit"))
