"""The webhooks of apps: those that clients have stored, besides those in the apps' code.

Each run gets them when it begins, so every server keeps them in memory. One of several servers reads them again every
two seconds, since another one may have changed them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from greenroom.errors import InvalidRequest, NotFound, StorageError, WebhookConflict
from greenroom.records.run import MAX_WEBHOOKS, Webhook
from greenroom.records.webhook_delivery import AppWebhook
from greenroom.runs.store import RunStore

_log = logging.getLogger("greenroom.runs")

REFRESH_SECONDS = 2.0


class AppWebhooks:
    """The stored webhooks of all apps."""

    def __init__(self, run_store: RunStore) -> None:
        self._run_store = run_store
        self._by_app: Mapping[str, Sequence[Webhook]] = {}
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._read()
        if self._run_store.replicas is not None:
            self._refreshing = asyncio.create_task(self._refresh())

    def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()

    def of(self, app_name: str, of_code: Sequence[Webhook]) -> Sequence[Webhook]:
        """The webhooks of an app: those of its code, and then those that are stored under other ids."""
        stored = self._by_app.get(app_name)
        if not stored:
            return of_code
        ids = {webhook.id for webhook in of_code}
        return [*of_code, *(webhook for webhook in stored if webhook.id not in ids)]

    async def list(self, app_name: str, of_code: Sequence[Webhook]) -> list[AppWebhook]:
        """As `of`, for clients, as they are stored now."""
        await self._read()
        ids = {webhook.id for webhook in of_code}
        return [
            AppWebhook(url=webhook.url, states=webhook.states, id=webhook.id, is_of_code=webhook.id in ids)
            for webhook in self.of(app_name, of_code)
        ]

    async def put(self, app_name: str, webhook: Webhook, of_code: Sequence[Webhook]) -> AppWebhook:
        """Stores a webhook, over an earlier one with its id. Raises WebhookConflict, InvalidRequest."""
        _check_is_not_of_code(webhook.id, of_code)
        async with self._lock:
            await self._read_locked()
            others = [one for one in self._by_app.get(app_name, ()) if one.id != webhook.id]
            if len(others) >= MAX_WEBHOOKS:
                raise InvalidRequest(f"An app may have {MAX_WEBHOOKS} webhooks besides those of its code")
            await self._run_store.save_app_webhook(app_name, webhook)
            await self._read_locked()
        return AppWebhook(url=webhook.url, states=webhook.states, id=webhook.id)

    async def delete(self, app_name: str, webhook_id: str, of_code: Sequence[Webhook]) -> None:
        """Raises WebhookConflict, NotFound."""
        _check_is_not_of_code(webhook_id, of_code)
        async with self._lock:
            if not await self._run_store.delete_app_webhook(app_name, webhook_id):
                raise NotFound(f"App {app_name!r} has no webhook {webhook_id!r}")
            await self._read_locked()

    async def _refresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            try:
                await self._read()
            except StorageError as error:
                _log.warning("the webhooks of apps could not be read again: %s", error)

    async def _read(self) -> None:
        async with self._lock:
            await self._read_locked()

    async def _read_locked(self) -> None:
        by_app: dict[str, list[Webhook]] = {}
        for app_name, webhook in await self._run_store.list_app_webhooks():
            by_app.setdefault(app_name, []).append(webhook)
        self._by_app = by_app


def _check_is_not_of_code(webhook_id: str, of_code: Sequence[Webhook]) -> None:
    if any(webhook.id == webhook_id for webhook in of_code):
        raise WebhookConflict(webhook_id)
