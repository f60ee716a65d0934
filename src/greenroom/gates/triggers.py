"""ADK's triggers: a message of Pub/Sub, or an event of Eventarc, runs an app in a session of its own.

The session's id follows from the delivery, so that a message that is delivered again neither runs twice nor side by
side: it waits for the run of its first delivery, and runs again only if that failed:

    delivery 1: creates the session, runs, fails with 429 → 500      (Pub/Sub sends the message again)
    delivery 2: finds the session, whose run failed → runs in it     → {"status": "success"}
    delivery 3 of the same message: finds the run that succeeded     → {"status": "success"}

A message may say when its run starts. It is answered once the run is stored, and isn't delivered again.

The sender's identity is checked as for any endpoint: Pub/Sub's OIDC tokens by the settings of
tokens. Source: google-adk 2.13, `cli/trigger_routes.py`; Google Cloud's format of push messages;
CloudEvents 1.0, HTTP binding.
"""

from __future__ import annotations

import asyncio
import os
import random
from base64 import b64decode
from collections.abc import Iterator
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5
from weakref import WeakKeyDictionary

import msgspec

from greenroom.errors import (
    AppLoadError,
    AppNotFound,
    Conflict,
    DeadlineExceeded,
    InvalidRequest,
    RunFailed,
    SessionExists,
    StorageError,
    TooManyRuns,
    Unavailable,
    error_of,
)
from greenroom.event_streams.stream import RunEnded
from greenroom.gates.run_start import seconds, start
from greenroom.records import wire
from greenroom.records.base import JsonObject, JsonValue, Record, as_object
from greenroom.records.content import Content, Part
from greenroom.records.run import AgentRunRequest, Run, RunFilter, RunStatus
from greenroom.records.session import SessionKey
from greenroom.runs.engine import Attachment
from greenroom.server.endpoint import Endpoint
from greenroom.server.replies import AnyReply, Reply
from greenroom.server.request_context import RequestContext

START_AT = "greenroom:startAt"
DELAY_SECONDS = "greenroom:delaySeconds"
"""Attributes of a message with the time at which its run starts."""

EVENT_START_AT = "greenroomstartat"
EVENT_DELAY = "greenroomdelay"
"""The same of a CloudEvent, whose attributes have lower-case letters and digits only."""

STATE_KEY = "trigger_delivery"
MAX_DELIVERIES = 1000
MAX_NUMBER = 1e6
_TRANSIENT = ("429", "resource_exhausted", "rate limit", "quota")

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class PubSubMessage(Record, kw_only=True):
    """A message of Pub/Sub."""

    data: str | None = None
    """The message's data in base64."""
    attributes: dict[str, str] | None = None
    """The message's attributes."""
    message_id: str | None = None
    """The same in each delivery of the message."""
    publish_time: str | None = None
    """In the form of RFC 3339."""


class PubSubTriggerRequest(Record, kw_only=True):
    """Body of a push delivery of Pub/Sub."""

    message: PubSubMessage
    """The message."""
    subscription: str | None = None
    """`projects/P/subscriptions/S`."""


class _Times(NamedTuple):
    """The time at which a run starts; both None for now."""

    start_at: float | None
    delay_seconds: float | None


class TriggerReply(Record, kw_only=True):
    """The reply to a delivery."""

    status: str
    """`success`; failures are HTTP errors, after which the sender delivers again."""


async def receive_pubsub(context: RequestContext) -> AnyReply:
    body: PubSubTriggerRequest = context.body
    message = body.message
    delivery: JsonObject = {
        "source": "pubsub",
        "id": message.message_id,
        "subscription": body.subscription,
        "publish_time": message.publish_time,
    }
    return await _deliver(
        context,
        delivery,
        _payload(message),
        times=_times_of(message, location=("body", "message", "attributes")),
        sender=body.subscription,
        default="pubsub-caller",
    )


async def receive_eventarc(context: RequestContext) -> AnyReply:
    """Receives a CloudEvent. In structured mode the body is the event; in binary mode it is the event's data, possibly
    a Pub/Sub message, and the attributes are headers `ce-…`.
    """
    event: JsonObject = context.body
    names = ("id", "type", "source", "specversion")
    attributes: JsonObject = {name: event.get(name) or context.headers.get(f"ce-{name}") for name in names}
    carrier = event if "message" in event else as_object(event.get("data"))

    message_id = None
    if isinstance(carrier.get("message"), dict):
        message = wire.from_plain(carrier["message"], PubSubMessage)
        payload = _payload(message)
        times = _times_of(message, location=("body", "message", "attributes"))
        message_id = message.message_id
    else:
        payload = {
            "data": event.get("data", event),
            "attributes": {f"ce-{name}": value for name, value in attributes.items()},
        }
        given = {name: event.get(name) or context.headers.get(f"ce-{name}") for name in (EVENT_START_AT, EVENT_DELAY)}
        times = _Times(
            start_at=seconds(given, EVENT_START_AT, location=("body",)),
            delay_seconds=seconds(given, EVENT_DELAY, location=("body",)),
        )

    delivery: JsonObject = {
        "source": "eventarc",
        "id": attributes["id"] or message_id,
        "event_source": attributes["source"],
        "type": attributes["type"],
    }
    return await _deliver(
        context, delivery, payload, times=times, sender=attributes["source"], default="eventarc-caller"
    )


def _times_of(message: PubSubMessage, *, location: tuple[str, ...]) -> _Times:
    attributes: JsonObject = {**(message.attributes or {})}
    return _Times(
        start_at=seconds(attributes, START_AT, location=location),
        delay_seconds=seconds(attributes, DELAY_SECONDS, location=location),
    )


def _payload(message: PubSubMessage) -> JsonObject:
    data: JsonValue = None
    if message.data:
        try:
            text = b64decode(message.data, validate=True).decode()
        except ValueError:
            raise InvalidRequest("The message's data is not UTF-8 in base64", location=("body", "message")) from None
        try:
            data = msgspec.json.decode(text)
        except msgspec.DecodeError:
            data = text

    return {"data": data, "attributes": message.attributes or {}}


async def _deliver(
    context: RequestContext,
    delivery: JsonObject,
    payload: JsonObject,
    *,
    times: _Times,
    sender: str | None,
    default: str,
) -> AnyReply:
    app_name = context.path["app_name"]
    identity = context.identity
    await context.apps.check_exists(app_name)
    user_id = str(sender or "").strip().strip("/").replace("/", "--") or default
    if not identity.acts_for(app_name, user_id):
        user_id = identity.subject
    delivery_key = wire.encode([app_name, user_id, delivery]).decode()
    if delivery["id"]:
        key = SessionKey(app_name, user_id, str(uuid5(NAMESPACE_URL, delivery_key)))
    else:
        key = context.new_session_key(lambda new_id: SessionKey(app_name, user_id, new_id))
    text = wire.encode(payload).decode()
    message = Content(role="user", parts=[Part(text=text)])
    request = AgentRunRequest(**key._asdict(), new_message=message, **times._asdict())
    async with _slot():
        run = await _run(context, request, {STATE_KEY: delivery})
    if run.status is RunStatus.FAILED:
        raise _failure(run)

    return Reply(value=TriggerReply(status="success"))


def _failure(run: Run) -> RunFailed:
    """The error of a failed run, with its own status if it is one of a run: 504 for a deadline."""
    if run.error is None:
        return RunFailed("The run failed")

    error = error_of(run.error.code, run.error.message)
    return error if isinstance(error, RunFailed) else RunFailed(run.error.message)


async def _run(context: RequestContext, request: AgentRunRequest, state: JsonObject) -> Run:
    """The run of an earlier delivery, or a new one if there was none or it failed; repeated after rate limits.

    Returns a run that starts later before it does.
    """
    names = {name: getattr(request, name) for name in SessionKey._fields}
    attempt = 0
    try:
        await context.sessions.create_session(**names, state=state)
    except SessionExists:
        run_filter = RunFilter(app_names=[request.app_name], user_id=request.user_id, session_id=request.session_id)
        runs = (await context.engine.list_runs(run_filter, limit=MAX_DELIVERIES)).runs
        attempt = len(runs)
        if runs:
            run = runs[0]
            if not run.is_delayed:
                run = await _wait(await context.engine.attach(run.id))
            if run.status is not RunStatus.FAILED:
                return run

    delays = list(_delays())
    while True:
        # The number of earlier runs is a part of the key: two deliveries that saw the same ones start one run.
        run_key = f"{request.session_id}/{attempt}"
        run, attachment = await start(context, request, idempotency_key=run_key)
        assert attachment is not None
        if run.is_delayed:
            attachment.close()
            return run
        run = await _wait(attachment)
        if run.status is not RunStatus.FAILED or not delays or not _is_transient(run):
            return run
        await asyncio.sleep(delays.pop(0))
        attempt += 1


def _is_transient(run: Run) -> bool:
    text = f"{run.error.code} {run.error.message}".lower() if run.error is not None else ""
    return any(word in text for word in _TRANSIENT)


def _delays() -> Iterator[float]:
    """Seconds before each repetition."""
    base = _number("RETRY_BASE_DELAY", 1.0)
    longest = _number("RETRY_MAX_DELAY", 30.0)
    for attempt in range(int(_number("MAX_RETRIES", 3))):
        yield min(base * 2**attempt, longest) * random.uniform(1.0, 1.5)


async def _wait(attachment: Attachment) -> Run:
    try:
        while True:
            for item in await attachment.next_batch():
                if isinstance(item, RunEnded):
                    return item.run
    finally:
        attachment.close()


def _slot() -> asyncio.Semaphore:
    return _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(int(_number("MAX_CONCURRENT", 10))))


def _number(name: str, default: float) -> float:
    """Reads one of ADK's variables. Raises Unavailable for an invalid value."""
    variable = f"ADK_TRIGGER_{name}"
    text = os.environ.get(variable)
    try:
        number = default if not text else float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number <= MAX_NUMBER:
        raise Unavailable(f"The variable {variable} must be a number from 0 to {MAX_NUMBER:g}, not {text!r}")
    return number


_ERRORS = (AppNotFound, AppLoadError, Conflict, DeadlineExceeded, RunFailed, StorageError, TooManyRuns, Unavailable)
_PATH = "/apps/{app_name}/trigger"

ENDPOINTS = (
    Endpoint("POST", _PATH + "/pubsub", receive_pubsub, "Triggers", "run", "Run an app for a message of Pub/Sub",
        body=PubSubTriggerRequest, replies=TriggerReply, errors=_ERRORS),
    Endpoint("POST", _PATH + "/eventarc", receive_eventarc, "Triggers", "run", "Run an app for an event of Eventarc",
        body=JsonObject, replies=TriggerReply, errors=_ERRORS),
)  # fmt: skip
