"""What was done for an event, or in a session: the spans of their runs."""

from __future__ import annotations

from greenroom.errors import TraceNotFound
from greenroom.server.call import AnyReply, Call, Reply


async def event_trace(call: Call) -> AnyReply:
    """One flat object: the span's attributes, its `trace_id` and its `span_id`."""
    span = await call.traces.of_event(call.path["event_id"], app_name=call.path.get("app_name"))
    if span is None:
        raise TraceNotFound
    return Reply(value=span.flat())


async def session_trace(call: Call) -> AnyReply:
    spans = await call.traces.of_session(call.path["session_id"], app_name=call.path.get("app_name"))
    return Reply(value=spans)
