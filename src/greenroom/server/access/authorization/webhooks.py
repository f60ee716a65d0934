"""Webhooks of runs and apps, limited to the caller's permissions."""

from __future__ import annotations

from collections.abc import Sequence

from greenroom.records.run import PushConfig, Run, RunWebhook, Webhook
from greenroom.records.webhook_delivery import AppWebhook, WebhookDelivery
from greenroom.runs.engine import RunEngine
from greenroom.server.access.authorization.authorized import Authorized
from greenroom.server.access.authorization.runs import AuthorizedRuns, names_of


class AuthorizedWebhooks(Authorized[RunEngine]):
    """Webhooks for one caller: those of another user's run are reported as not found, with the run."""

    __slots__ = ()

    async def add_webhook(self, run_id: str, webhook: Webhook) -> RunWebhook:
        """Raises RunNotFound, also for another user's run, and InvalidRequest."""
        run = await self._run(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        added = await self._watched_result(self._service.add_webhook(run_id, webhook))
        await self._permissions.record("run.webhook.changed", **names_of(run), target=added.id)
        return added

    async def delete_webhook(self, run_id: str, webhook_id: str) -> None:
        """Raises RunNotFound, also for another user's run."""
        run = await self._run(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        await self._watched_result(self._service.delete_webhook(run_id, webhook_id))
        await self._permissions.record("run.webhook.deleted", **names_of(run), target=webhook_id)

    async def list_deliveries(
        self, *, app_name: str, webhook_id: str, run_id: str | None, limit: int
    ) -> list[WebhookDelivery]:
        """Messages about one run, or about those of all users. Raises RunNotFound, Forbidden."""
        if run_id is None:
            self._permissions.check("read", app_name, None)
        else:
            await self._run(run_id)
        return await self._service.webhooks.run_store.list_deliveries(
            app_name=app_name, webhook_id=webhook_id, run_id=run_id, limit=limit
        )

    async def get_delivery(self, *, app_name: str, delivery_id: str) -> WebhookDelivery | None:
        """None also for a message about another app's run. Raises Forbidden for another user's."""
        delivery = await self._service.webhooks.run_store.get_delivery(delivery_id)
        if delivery is None or delivery.app_name != app_name:
            return None
        self._permissions.check("read", app_name, delivery.user_id)
        return delivery

    async def redeliver(self, delivery: WebhookDelivery) -> WebhookDelivery:
        """Raises Forbidden."""
        self._permissions.check("write", delivery.app_name, delivery.user_id)
        delivery = await self._watched_result(self._service.webhooks.redeliver(delivery))
        await self._permissions.record(
            "webhook.redelivered",
            app_name=delivery.app_name,
            user_id=delivery.user_id,
            run_id=delivery.run_id,
            target=delivery.webhook_id,
        )
        return delivery

    async def test_webhook(self, app_name: str, webhook: Webhook, run: Run | None = None) -> WebhookDelivery:
        """Raises Forbidden."""
        self._permissions.check("write", app_name, run.user_id if run is not None else None)
        delivery = await self._watched_result(self._service.webhooks.test(app_name, webhook, run))
        names = names_of(run) if run is not None else {"app_name": app_name}
        await self._permissions.record("webhook.tested", **names, target=webhook.id)
        return delivery

    async def list_app_webhooks(self, app_name: str, of_code: Sequence[Webhook]) -> list[AppWebhook]:
        """Raises Forbidden."""
        self._permissions.check("read", app_name, None)
        return await self._service.app_webhooks.list(app_name, of_code)

    async def put_app_webhook(self, app_name: str, webhook: Webhook, of_code: Sequence[Webhook]) -> AppWebhook:
        """Raises Forbidden, WebhookConflict, InvalidRequest."""
        self._permissions.check("write", app_name, None)
        stored = await self._service.app_webhooks.put(app_name, webhook, of_code)
        await self._permissions.record("app.webhook.changed", app_name=app_name, target=stored.id)
        return stored

    async def delete_app_webhook(self, app_name: str, webhook_id: str, of_code: Sequence[Webhook]) -> None:
        """Raises Forbidden, WebhookConflict, NotFound."""
        self._permissions.check("write", app_name, None)
        await self._service.app_webhooks.delete(app_name, webhook_id, of_code)
        await self._permissions.record("app.webhook.deleted", app_name=app_name, target=webhook_id)

    async def save_push_config(self, config: PushConfig) -> None:
        """Raises RunNotFound, also for another user's run, and InvalidRequest."""
        run = await self._run(config.run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        await self._watched_result(self._service.push_notifications.save(run, config))
        await self._permissions.record("run.webhook.changed", **names_of(run), target=config.id)

    async def list_push_configs(self, run_id: str) -> list[PushConfig]:
        """Raises RunNotFound, also for another user's run."""
        return await self._service.push_notifications.list((await self._run(run_id)).id)

    async def delete_push_config(self, run_id: str, config_id: str) -> None:
        """Raises RunNotFound, also for another user's run."""
        run = await self._run(run_id)
        self._permissions.check("write", run.app_name, run.user_id)
        await self._watched_result(self._service.push_notifications.delete(run, config_id))
        await self._permissions.record("run.webhook.deleted", **names_of(run), target=config_id)

    async def _run(self, run_id: str) -> Run:
        """Raises RunNotFound, also for another user's run."""
        return await AuthorizedRuns(self._service, self._permissions).get(run_id)
