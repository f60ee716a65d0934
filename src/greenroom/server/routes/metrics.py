"""What all runs add up to, for a monitoring system."""

from __future__ import annotations

from greenroom.server.call import AnyReply, Call, Reply

_TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(call: Call) -> AnyReply:
    return Reply(data=call.metrics_text(), media_type=_TEXT_FORMAT)
