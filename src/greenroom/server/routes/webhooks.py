"""Handlers of webhooks: those of runs and of apps, and the messages to them."""

from __future__ import annotations

from http import HTTPStatus

from greenroom.apps.app import App
from greenroom.errors import InvalidRequest, NotFound
from greenroom.records.run import Run, RunWebhook, Webhook
from greenroom.records.webhook_delivery import (
    AppWebhook,
    ListAppWebhooksResponse,
    ListDeliveriesResponse,
    ListRunWebhooksResponse,
)
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

DELIVERY_LIMIT = 1000


async def add_run_webhook(context: RequestContext) -> AnyReply:
    webhook: Webhook = context.body
    run = await context.engine.get(context.path["run_id"])
    context.check_webhook(run.app_name, webhook)
    added = await context.webhooks.add_webhook(run.id, webhook)
    return Reply(value=added, status=HTTPStatus.CREATED)


async def list_run_webhooks(context: RequestContext) -> AnyReply:
    run = await context.engine.get(context.path["run_id"])
    return Reply(value=ListRunWebhooksResponse(webhooks=run.webhooks))


async def delete_run_webhook(context: RequestContext) -> AnyReply | None:
    run, webhook = await _of_run(context)
    await context.webhooks.delete_webhook(run.id, webhook.id)
    return None


async def list_run_deliveries(context: RequestContext) -> AnyReply:
    run, webhook = await _of_run(context)
    return await _deliveries(context, run.app_name, webhook.id, run.id)


async def test_run_webhook(context: RequestContext) -> AnyReply:
    run, webhook = await _of_run(context)
    return Reply(value=await context.webhooks.test_webhook(run.app_name, webhook, run))


async def redeliver_of_run(context: RequestContext) -> AnyReply:
    run, webhook = await _of_run(context)
    return await _redeliver(context, run.app_name, webhook.id, run.id)


async def list_app_webhooks(context: RequestContext) -> AnyReply:
    app = await _app(context)
    listed = await context.webhooks.list_app_webhooks(context.path["app_name"], app.webhooks)
    return Reply(value=ListAppWebhooksResponse(webhooks=listed))


async def get_app_webhook(context: RequestContext) -> AnyReply:
    _, webhook = await _of_app(context)
    return Reply(value=webhook)


async def put_app_webhook(context: RequestContext) -> AnyReply:
    app = await _app(context)
    app_name = context.path["app_name"]
    webhook_id = context.path["webhook_id"]
    given: Webhook = context.body
    if given.id not in ("", webhook_id):
        raise InvalidRequest("The id in the body differs from that in the path", location=("body", "id"))
    webhook = Webhook(url=given.url, states=given.states, id=webhook_id)
    context.check_webhook(app_name, webhook)
    return Reply(value=await context.webhooks.put_app_webhook(app_name, webhook, app.webhooks))


async def delete_app_webhook(context: RequestContext) -> AnyReply | None:
    app = await _app(context)
    await context.webhooks.delete_app_webhook(context.path["app_name"], context.path["webhook_id"], app.webhooks)
    return None


async def list_app_deliveries(context: RequestContext) -> AnyReply:
    app_name, webhook = await _of_app(context)
    return await _deliveries(context, app_name, webhook.id)


async def test_app_webhook(context: RequestContext) -> AnyReply:
    app_name, webhook = await _of_app(context)
    return Reply(value=await context.webhooks.test_webhook(app_name, webhook))


async def redeliver_of_app(context: RequestContext) -> AnyReply:
    app_name, webhook = await _of_app(context)
    return await _redeliver(context, app_name, webhook.id)


async def _of_run(context: RequestContext) -> tuple[Run, RunWebhook]:
    """Raises RunNotFound, NotFound."""
    run = await context.engine.get(context.path["run_id"])
    for webhook in run.webhooks:
        if webhook.id == context.path["webhook_id"]:
            return run, webhook
    raise NotFound(f"Run {run.id!r} has no webhook {context.path['webhook_id']!r}")


async def _of_app(context: RequestContext) -> tuple[str, AppWebhook]:
    """Raises Forbidden, AppNotFound, AppLoadError, NotFound."""
    app = await _app(context)
    app_name = context.path["app_name"]
    for webhook in await context.webhooks.list_app_webhooks(app_name, app.webhooks):
        if webhook.id == context.path["webhook_id"]:
            return app_name, webhook
    raise NotFound(f"App {app_name!r} has no webhook {context.path['webhook_id']!r}")


async def _app(context: RequestContext) -> App:
    """Raises Forbidden unless the caller acts for all users of the app, AppNotFound, AppLoadError."""
    context.identity.check_reach(context.path["app_name"], None)
    return await context.apps.load(context.path["app_name"])


async def _deliveries(context: RequestContext, app_name: str, webhook_id: str, run_id: str | None = None) -> Reply:
    limit = min(context.query["limit"] or 100, DELIVERY_LIMIT)
    listed = await context.webhooks.list_deliveries(
        app_name=app_name, webhook_id=webhook_id, run_id=run_id, limit=limit
    )
    return Reply(value=ListDeliveriesResponse(deliveries=listed))


async def _redeliver(context: RequestContext, app_name: str, webhook_id: str, run_id: str | None = None) -> Reply:
    delivery = await context.webhooks.get_delivery(app_name=app_name, delivery_id=context.path["delivery_id"])
    if delivery is None or delivery.webhook_id != webhook_id or run_id not in (None, delivery.run_id):
        raise NotFound(f"Webhook {webhook_id!r} has no delivery {context.path['delivery_id']!r}")
    return Reply(value=await context.webhooks.redeliver(delivery))
