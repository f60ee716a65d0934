"""Run records that live as long as the process."""

from __future__ import annotations

import heapq
from asyncio import Future, get_running_loop
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from operator import itemgetter

import msgspec

from greenroom.audit.in_memory import InMemoryAuditStore
from greenroom.errors import IdempotencyConflict
from greenroom.feedback.in_memory import InMemoryFeedbackStore
from greenroom.records.audit import AuditEntry
from greenroom.records.inbox import (
    HumanRequest,
    ListRequestsResponse,
    RequestChanges,
    RequestFilter,
    RequestStatus,
    may_answer,
    may_see,
)
from greenroom.records.run import ListRunsResponse, PushConfig, Run, RunFilter, Webhook
from greenroom.records.session import SessionKey
from greenroom.records.shard import Shards
from greenroom.records.webhook_delivery import WebhookDelivery, new_deliveries
from greenroom.runs.store import RunStore, app_of_feedback, check_limit, next_page, page_position
from greenroom.runs.watch import matches
from greenroom.schedules.in_memory import InMemoryScheduleStore
from greenroom.statistics.in_memory import InMemoryStatisticsStore
from greenroom.statistics.run_figures import RunFigures
from greenroom.versions.in_memory import InMemoryVersionStore


class InMemoryRunStore(RunStore):
    def __init__(self, *, max_finished: int = 100_000) -> None:
        """Keeps up to `max_finished` ended runs; the oldest are dropped."""
        self.schedules = InMemoryScheduleStore()
        self.audit = InMemoryAuditStore()
        self._feedback = InMemoryFeedbackStore()
        self.feedback = self._feedback
        self.versions = InMemoryVersionStore()
        self._statistics = InMemoryStatisticsStore()
        self.statistics = self._statistics
        self._max_finished = max_finished
        self._runs: dict[str, Run] = {}
        self._finished: OrderedDict[str, None] = OrderedDict()
        self._unfinished: dict[str, None] = {}
        self._by_session: dict[tuple[str, str, str], dict[str, None]] = {}
        self._by_idempotency_key: dict[tuple[str, str, str], tuple[str, str | None]] = {}
        self._keys: dict[str, set[str]] = {}
        self._deliveries: dict[str, WebhookDelivery] = {}
        self._deliveries_of_run: dict[str, list[str]] = {}
        self._push_configs: dict[str, dict[str, PushConfig]] = {}
        self._app_webhooks: dict[tuple[str, str], Webhook] = {}
        self._wake_ups: dict[str, float] = {}
        self._requests: dict[str, HumanRequest] = {}
        self._requests_of_run: dict[str, list[str]] = {}
        self._open_requests: dict[str, None] = {}

    def save(
        self,
        run: Run,
        *,
        is_to_remember: bool = False,
        requests: RequestChanges | None = None,
        audit: Sequence[AuditEntry] = (),
        figures: Sequence[RunFigures] = (),
    ) -> Future[None]:
        done: Future[None] = get_running_loop().create_future()
        if run.idempotency_key is not None:
            scoped_key = run.app_name, run.user_id, run.idempotency_key
            holder, _ = self._by_idempotency_key.setdefault(scoped_key, (run.id, run.request_digest))
            if holder != run.id:
                done.set_exception(IdempotencyConflict(run.idempotency_key))
                done.exception()  # marks it as seen: the future may be dropped
                return done
            self._keys.setdefault(run.id, set()).add(run.idempotency_key)

        if run.id not in self._runs:
            self._by_session.setdefault((run.app_name, run.user_id, run.session_id), {})[run.id] = None
        self._runs[run.id] = msgspec.structs.replace(run)

        if run.start_at is not None and run.is_delayed:
            self._wake_ups[run.id] = run.start_at
        elif run.status.is_over:
            self._unfinished.pop(run.id, None)
            self._finished[run.id] = None
            if len(self._finished) > self._max_finished:
                self._forget(self._finished.popitem(last=False)[0])
        else:
            self._finished.pop(run.id, None)
            self._unfinished[run.id] = None
        if requests is not None:
            self._change_requests(requests)
        if audit:
            self.audit.append(audit)
        if figures:
            self._statistics.add(figures)
        done.set_result(None)

        if run.webhooks:
            deliveries = new_deliveries(run)
            for delivery in deliveries:
                self._add_delivery(delivery)
            if deliveries and self.added is not None:
                self.added(deliveries)
        return done

    def _forget(self, run_id: str) -> None:
        run = self._runs.pop(run_id)
        session = run.app_name, run.user_id, run.session_id
        of_session = self._by_session[session]
        del of_session[run_id]
        if not of_session:
            del self._by_session[session]
        self._push_configs.pop(run_id, None)
        for delivery_id in self._deliveries_of_run.pop(run_id, ()):
            self._deliveries.pop(delivery_id, None)

        self._wake_ups.pop(run_id, None)
        for request_id in self._requests_of_run.pop(run_id, ()):
            del self._requests[request_id]
            self._open_requests.pop(request_id, None)
        for key in self._keys.pop(run_id, ()):
            del self._by_idempotency_key[run.app_name, run.user_id, key]

    async def get(self, run_id: str) -> Run | None:
        run = self._runs.get(run_id)
        return None if run is None else msgspec.structs.replace(run)

    async def find_by_idempotency_key(self, *, app_name: str, user_id: str, key: str) -> Run | None:
        run_id, digest = self._by_idempotency_key.get((app_name, user_id, key), (None, None))
        run = await self.get(run_id) if run_id is not None else None
        if run is not None:
            run.idempotency_key = key
            run.request_digest = digest
        return run

    async def list_runs(
        self, where: RunFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRunsResponse:
        check_limit(limit)
        before = page_position(page_token)
        if where.app_names is not None and len(where.app_names) == 1 and where.user_id and where.session_id:
            ids = self._by_session.get((where.app_names[0], where.user_id, where.session_id), {})
            candidates = [self._runs[run_id] for run_id in ids]
        else:
            candidates = list(self._runs.values())
        matching = [run for run in candidates if matches(run, where)]
        judged_app = app_of_feedback(where)
        if judged_app is not None:
            judged = self._feedback.judged_runs(judged_app, where)
            matching = [run for run in matching if run.id in judged]
        if before is not None:
            matching = [run for run in matching if (run.created_at, run.id) < before]
        matching.sort(key=lambda run: (run.created_at, run.id), reverse=True)
        page = [msgspec.structs.replace(run) for run in matching[:limit]]
        return ListRunsResponse(runs=page, next_page_token=next_page(page) if len(page) < len(matching) else None)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        for run_id in list(self._by_session.get((app_name, user_id, session_id), ())):
            self._finished.pop(run_id, None)
            self._unfinished.pop(run_id, None)
            self._forget(run_id)
        self._feedback.delete_session(SessionKey(app_name, user_id, session_id))

    async def save_push_config(self, config: PushConfig) -> None:
        if config.run_id in self._runs:
            self._push_configs.setdefault(config.run_id, {})[config.id] = msgspec.structs.replace(config)

    async def list_push_configs(self, run_id: str) -> list[PushConfig]:
        return [msgspec.structs.replace(config) for _, config in sorted(self._push_configs.get(run_id, {}).items())]

    async def list_open_push_configs(self, shards: Shards | None = None) -> list[PushConfig]:
        return [
            msgspec.structs.replace(config)
            for run_id, of_run in self._push_configs.items()
            if shards is None or shards.include(self._runs[run_id].session_key)
            for config in of_run.values()
            if not config.is_over
        ]

    async def delete_push_config(self, run_id: str, config_id: str) -> None:
        self._push_configs.get(run_id, {}).pop(config_id, None)

    async def add_delivery(self, delivery: WebhookDelivery) -> None:
        self._add_delivery(delivery)

    def _add_delivery(self, delivery: WebhookDelivery) -> None:
        self._deliveries[delivery.id] = msgspec.structs.replace(delivery)
        if delivery.run_id is not None:
            self._deliveries_of_run.setdefault(delivery.run_id, []).append(delivery.id)

    async def update_delivery(self, delivery: WebhookDelivery) -> None:
        if delivery.id in self._deliveries:
            self._deliveries[delivery.id] = msgspec.structs.replace(delivery)

    async def get_delivery(self, delivery_id: str) -> WebhookDelivery | None:
        delivery = self._deliveries.get(delivery_id)
        return None if delivery is None else msgspec.structs.replace(delivery)

    async def list_deliveries(
        self, *, app_name: str, webhook_id: str, run_id: str | None = None, limit: int = 100
    ) -> list[WebhookDelivery]:
        ids = self._deliveries if run_id is None else self._deliveries_of_run.get(run_id, ())
        candidates = [self._deliveries[delivery_id] for delivery_id in ids if delivery_id in self._deliveries]
        found = [
            msgspec.structs.replace(delivery)
            for delivery in candidates
            if delivery.app_name == app_name and delivery.webhook_id == webhook_id
        ]
        found.sort(key=lambda delivery: (delivery.created_at, delivery.number, delivery.id), reverse=True)
        return found[:limit]

    async def list_pending_deliveries(self, shards: Shards | None = None) -> list[WebhookDelivery]:
        pending = [
            delivery
            for delivery in self._deliveries.values()
            if delivery.next_try_at is not None
            and (shards is None or ((key := delivery.session_key) is not None and shards.include(key)))
        ]
        return [msgspec.structs.replace(delivery) for delivery in sorted(pending, key=lambda one: one.number)]

    async def delete_deliveries(self, *, run_id: str, webhook_id: str) -> None:
        for delivery_id in self._deliveries_of_run.get(run_id, ()):
            delivery = self._deliveries.get(delivery_id)
            if delivery is not None and delivery.webhook_id == webhook_id:
                del self._deliveries[delivery_id]

    async def prune_deliveries(self, *, app_name: str, webhook_id: str, keep: int) -> None:
        listed = await self.list_deliveries(app_name=app_name, webhook_id=webhook_id, limit=len(self._deliveries))
        for delivery in listed[keep:]:
            if delivery.next_try_at is None:
                del self._deliveries[delivery.id]

    def save_wake_up(self, run: Run, at: float) -> Future[None]:
        self._wake_ups[run.id] = at
        done: Future[None] = get_running_loop().create_future()
        done.set_result(None)
        return done

    async def move_wake_up(self, run_id: str, at: float, *, to: float | None) -> None:
        if self._wake_ups.get(run_id) != at:
            return
        if to is None:
            del self._wake_ups[run_id]
        else:
            self._wake_ups[run_id] = to

    async def delete_wake_up(self, run_id: str) -> None:
        self._wake_ups.pop(run_id, None)

    async def next_wake_ups(self, limit: int) -> list[tuple[float, str]]:
        return heapq.nsmallest(limit, ((at, run_id) for run_id, at in self._wake_ups.items()))

    async def save_app_webhook(self, app_name: str, webhook: Webhook) -> None:
        self._app_webhooks[app_name, webhook.id] = webhook

    async def list_app_webhooks(self) -> list[tuple[str, Webhook]]:
        return [(app_name, webhook) for (app_name, _), webhook in sorted(self._app_webhooks.items(), key=itemgetter(0))]

    async def delete_app_webhook(self, app_name: str, webhook_id: str) -> bool:
        return self._app_webhooks.pop((app_name, webhook_id), None) is not None

    def _change_requests(self, changes: RequestChanges) -> None:
        for request in changes.added:
            if request.id not in self._requests:
                self._put_request(request)
        for request in changes.answered:
            self._put_request(request)
        for request_id in changes.cancelled:
            request = self._requests.get(request_id)
            if request is not None and request.status is RequestStatus.OPEN:
                self._put_request(msgspec.structs.replace(request, status=RequestStatus.CANCELLED))

    def _put_request(self, request: HumanRequest) -> None:
        if request.id not in self._requests:
            self._requests_of_run.setdefault(request.run_id, []).append(request.id)
        self._requests[request.id] = msgspec.structs.replace(request)
        if request.status is RequestStatus.OPEN:
            self._open_requests[request.id] = None
        else:
            self._open_requests.pop(request.id, None)

    async def save_request(self, request: HumanRequest, *, audit: Sequence[AuditEntry] = ()) -> None:
        self._put_request(request)
        if audit:
            self.audit.append(audit)

    async def get_request(self, request_id: str) -> HumanRequest | None:
        request = self._requests.get(request_id)
        return None if request is None else msgspec.structs.replace(request)

    async def list_requests(
        self, where: RequestFilter, *, limit: int | None = 100, page_token: str | None = None
    ) -> ListRequestsResponse:
        check_limit(limit)
        before = page_position(page_token)
        found = [
            request
            for request in map(self._requests.__getitem__, self._requests if where.with_closed else self._open_requests)
            if _is_listed(request, where) and (before is None or (request.created_at, request.id) < before)
        ]
        found.sort(key=lambda request: (request.created_at, request.id), reverse=True)
        page = [msgspec.structs.replace(request) for request in found[:limit]]
        return ListRequestsResponse(requests=page, next_page_token=next_page(page) if len(page) < len(found) else None)

    async def count_requests(self, *, open_at: float) -> Mapping[str, int]:
        return Counter(
            request.app_name
            for request in map(self._requests.__getitem__, self._open_requests)
            if request.as_of(open_at).status is RequestStatus.OPEN
        )

    async def list_unfinished(self, shards: Shards | None = None) -> list[Run]:
        unfinished = [self._runs[run_id] for run_id in self._unfinished]
        if shards is not None:
            unfinished = [run for run in unfinished if shards.include(run.session_key)]
        return [msgspec.structs.replace(run) for run in sorted(unfinished, key=_created_at)]


def _created_at(run: Run) -> float:
    return run.created_at


def _is_listed(request: HumanRequest, where: RequestFilter) -> bool:
    return (
        (where.app_names is None or request.app_name in where.app_names)
        and where.user_id in (None, request.user_id)
        and (where.kinds is None or request.kind in where.kinds)
        and where.tool in (None, request.tool)
        and (where.run_ids is None or request.run_id in where.run_ids)
        and (where.open_at is None or request.as_of(where.open_at).status is RequestStatus.OPEN)
        and (where.seen_by is None or may_see(where.seen_by, request))
        and (where.answered_by is None or may_answer(where.answered_by, request))
    )
