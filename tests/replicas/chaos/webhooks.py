"""Webhooks: each state of a run that its receiver must have got, and what it has."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from greenroom.records.session import SessionKey
from tests.replicas.chaos.checks import Problem
from tests.replicas.chaos.client import Client
from tests.replicas.chaos.journal import Journal
from tests.replicas.chaos.store import StoredSession
from tests.server.conftest import WEBHOOK_SECRET
from tests.server.webhook_receiver import WebhookReceiver


async def wait_for_webhooks(
    receiver: WebhookReceiver, stored: Mapping[SessionKey, StoredSession], clients: Iterable[Client], *, seconds: float
) -> None:
    """Waits until the receiver has the last state of each run with a webhook, or the time is over."""
    wanted = _last_states(stored, clients)
    try:
        async with asyncio.timeout(seconds):
            while not wanted.keys() <= _ids_by_state(receiver).keys():
                await asyncio.sleep(0.2)
    except TimeoutError:
        pass


def check_webhooks(
    receiver: WebhookReceiver, stored: Mapping[SessionKey, StoredSession], clients: Iterable[Client], journal: Journal
) -> list[Problem]:
    """Each state was sent at least once, always with one id and the signature of its body."""
    problems: list[Problem] = []
    wanted = _last_states(stored, clients)
    found = _ids_by_state(receiver)
    for state, client in wanted.items():
        if state not in found:
            problems.append(Problem(f"the webhook was not sent: {state}", client.name, client.key))
    for state, ids in found.items():
        if len(ids) > 1:
            problems.append(Problem(f"the webhook of {state} was sent with several ids: {ids}"))
    if unknown := {run_id for run_id, _ in found} - {run_id for run_id, _ in wanted}:
        problems.append(Problem(f"webhooks of runs that have none: {unknown}"))

    verifier = Webhook(WEBHOOK_SECRET)
    for message in receiver.messages:
        try:
            verifier.verify(message.body, dict(message.headers))
        except WebhookVerificationError as error:
            problems.append(Problem(f"the webhook {message.id} has no valid signature: {error}"))
    journal.count("webhooks", len(found))
    journal.count("webhooks that were sent again", len(receiver.messages) - len(found))
    return problems


def _last_states(
    stored: Mapping[SessionKey, StoredSession], clients: Iterable[Client]
) -> dict[tuple[str, str], Client]:
    """The client by the id of a run and the type of the message about its last state."""
    states: dict[tuple[str, str], Client] = {}
    for client in clients:
        for run in client.runs:
            session = stored.get(run.key)
            if run.has_webhook and session is not None and run.id in session.runs:
                states[run.id, f"run.{session.runs[run.id]['status']}"] = client
    return states


def _ids_by_state(receiver: WebhookReceiver) -> dict[tuple[str, str], set[str]]:
    """The ids of messages by the id of their run and their type."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for message in receiver.messages:
        found[message.content["data"]["id"], message.type].add(message.id)
    return found
