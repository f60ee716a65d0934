from __future__ import annotations

from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

from greenroom.runs.ownership import Replicas
from greenroom.server.exchange import EXCHANGE, Exchange
from greenroom.server.handoff import HANDOFF, HandoffApp


@pytest.mark.parametrize(
    ("extensions", "is_counted"), [({HANDOFF: None}, True), ({HANDOFF: lambda *_: False}, False), ({}, False)]
)
async def test_a_request_that_another_worker_has_given_away_is_counted_already(
    extensions: dict[str, Any], is_counted: bool
) -> None:
    seen: list[bool] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        seen.append(scope[EXCHANGE].is_counted)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(_message: Message) -> None:
        raise AssertionError("nothing is sent")

    exchange = Exchange(receive, send, keeps_body=True)
    scope: Scope = {"type": "http", "extensions": extensions, EXCHANGE: exchange}
    await HandoffApp(app, cast("Replicas", None))(scope, receive, send)
    assert seen == [is_counted]
