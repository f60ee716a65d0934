"""Messages to webhooks: one for each state of a run that a webhook receives, with the tries to send it."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from greenroom.errors import InvalidRequest
from greenroom.records import wire
from greenroom.records.base import JsonValue, Record
from greenroom.records.identifiers import new_delivery_id, new_webhook_id
from greenroom.records.run import MAX_WEBHOOKS, WEBHOOK_ID, Run, RunWebhook, Webhook, public_record
from greenroom.records.session import SessionKey

TEST = "webhook.test"
"""The type of the message that `…/test` sends."""

MAX_URL_LENGTH = 4096
MAX_ATTEMPTS = 10
"""Number of tries that a delivery keeps, the newest."""

_ID = re.compile(WEBHOOK_ID)


class WebhookEvent(Record, kw_only=True):
    """The body of a message."""

    type: str
    """`run.` and the status: `run.succeeded`. `webhook.test` for a test."""
    timestamp: datetime
    """Time of the change of the status, in UTC."""
    data: JsonValue
    """The run as `GET /runs/{run_id}` shows it at that time. Of a test: the app and the webhook."""


class DeliveryAttempt(Record, kw_only=True):
    """A try to send a message."""

    at: float
    """Unix seconds."""
    seconds: float
    """Duration."""
    status_code: int | None = None
    """The HTTP status of the response; None without one."""
    error: str | None = None
    """The reason of a failure; None if the receiver accepted the message."""


class WebhookDelivery(Record, kw_only=True):
    """A message to a webhook, with the tries to send it. Times are Unix seconds."""

    id: str
    """The header `webhook-id` of all tries."""
    webhook_id: str
    """The webhook of the run, or of the app."""
    app_name: str
    """The app of the run."""
    run_id: str | None = None
    """None for a test of an app's webhook, which concerns no run."""
    user_id: str | None = None
    """The user of the run."""
    session_id: str | None = None
    """The session of the run."""
    url: str
    """The address that it is sent to."""
    type: str
    """The type in the body."""
    number: int = 0
    """Position among the messages of the run to the webhook, which are sent in this order."""
    created_at: float
    """Unix seconds."""
    body: str
    """The JSON of the `WebhookEvent` that is sent."""
    status: Literal["pending", "delivered", "failed"]
    """`failed`: it is not tried again, unless a client asks for it."""
    failures: int = 0
    """Number of failed tries."""
    next_try_at: float | None = None
    """None unless it is pending."""
    attempts: list[DeliveryAttempt] = msgspec.field(default_factory=list[DeliveryAttempt])
    """The newest tries, newest last."""

    @property
    def session_key(self) -> SessionKey | None:
        """The session of the run."""
        if self.user_id is None or self.session_id is None:
            return None
        return SessionKey(self.app_name, self.user_id, self.session_id)

    def note(self, attempt: DeliveryAttempt) -> None:
        """Adds a try."""
        self.attempts = [*self.attempts, attempt][-MAX_ATTEMPTS:]
        if attempt.error is None:
            self.status = "delivered"
            self.next_try_at = None
        else:
            self.failures += 1


class ListDeliveriesResponse(Record, kw_only=True, omit_defaults=False):
    """The messages to a webhook."""

    deliveries: list[WebhookDelivery]
    """Newest first."""


class ListRunWebhooksResponse(Record, kw_only=True, omit_defaults=False):
    """The webhooks of a run."""

    webhooks: list[RunWebhook]
    """Those of the app, which the run had when it began, and those of the run."""


class AppWebhook(Webhook, kw_only=True):
    """A webhook of an app."""

    is_of_code: bool = False
    """Whether the app's code or YAML has it; it is changed there."""


class ListAppWebhooksResponse(Record, kw_only=True, omit_defaults=False):
    """The webhooks of an app."""

    webhooks: list[AppWebhook]
    """Those of the app's code, then those that clients have stored."""


def new_deliveries(run: Run) -> list[WebhookDelivery]:
    """Returns the messages that are to be sent if the run's record is stored as it is now, and notes its status.

    Example, with a webhook for `waiting` and `succeeded`:

        status     changes  messages
        running    1
        running    1        (the record was saved again)
        waiting    2        run.waiting, number 2
        running    3
        waiting    4        run.waiting, number 4
    """
    deliveries: list[WebhookDelivery] = []
    body: str | None = None
    for webhook in run.webhooks:
        if webhook.status is run.status:
            continue
        webhook.status = run.status
        webhook.changes += 1
        if run.status in webhook.states:
            now = time.time()
            type_ = f"run.{run.status}"
            body = body or event_body(type_, public_record(run), now)
            deliveries.append(
                WebhookDelivery(
                    id=new_delivery_id(),
                    webhook_id=webhook.id,
                    app_name=run.app_name,
                    run_id=run.id,
                    user_id=run.user_id,
                    session_id=run.session_id,
                    url=webhook.url,
                    type=type_,
                    number=webhook.changes,
                    created_at=now,
                    body=body,
                    status="pending",
                    next_try_at=now,
                )
            )
    return deliveries


def event_body(type_: str, data: object, at: float) -> str:
    timestamp = datetime.fromtimestamp(at, UTC)
    return wire.encode(WebhookEvent(type=type_, timestamp=timestamp, data=data)).decode()


def add_webhooks(run: Run, webhooks: Sequence[Webhook], *, is_of_app: bool = False) -> list[RunWebhook]:
    """Adds webhooks to a run, in place of those with the same id, and returns them as added.

    Raises InvalidRequest if there are too many.
    """
    added: list[RunWebhook] = []
    for webhook in webhooks:
        webhook_id = webhook.id or new_webhook_id()
        added.append(RunWebhook(url=webhook.url, states=webhook.states, id=webhook_id, is_of_app=is_of_app))
    ids = {webhook.id for webhook in added}
    kept = [webhook for webhook in run.webhooks if webhook.id not in ids]
    if not is_of_app and sum(not webhook.is_of_app for webhook in (*kept, *added)) > MAX_WEBHOOKS:
        raise InvalidRequest(f"A run may have {MAX_WEBHOOKS} webhooks", location=("body", "webhooks"))
    run.webhooks[:] = [*kept, *added]  # the run's other records share the list
    return added


def check_webhook(webhook: Webhook) -> None:
    """Raises InvalidRequest for a URL that can't be called, whatever the network."""
    if not _ID.fullmatch(webhook.id):
        raise InvalidRequest("The id of a webhook may have up to 64 letters, digits, '_' and '-'", location=("id",))
    if not webhook.states:
        raise InvalidRequest("A webhook needs at least one state", location=("states",))
    if len(webhook.url) > MAX_URL_LENGTH or not (webhook.url.isascii() and webhook.url.isprintable()):
        raise InvalidRequest(
            f"The URL of a webhook must be printable ASCII, up to {MAX_URL_LENGTH} long", location=("url",)
        )

    try:
        parts = urlsplit(webhook.url)
        _ = parts.port
    except ValueError as error:
        raise InvalidRequest(f"The URL of a webhook is invalid: {error}", location=("url",)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or " " in webhook.url:
        raise InvalidRequest("The URL of a webhook must begin with http:// or https://", location=("url",))
    if parts.username is not None or parts.password is not None:
        raise InvalidRequest("The URL of a webhook must not contain a user name or password", location=("url",))


def with_default_id(webhook: Webhook) -> Webhook:
    """A webhook of an app; its id, unless it has one, follows from its URL, so that it stays after a restart."""
    if webhook.id:
        return webhook
    digest = sha256(webhook.url.encode("utf-8", "surrogatepass")).hexdigest()
    return msgspec.structs.replace(webhook, id=f"app_{digest[:16]}")
