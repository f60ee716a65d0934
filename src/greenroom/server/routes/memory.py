"""Memory: a session remembered."""

from __future__ import annotations

from greenroom.errors import SessionNotFound
from greenroom.records.base import Record
from greenroom.server.call import AnyReply, Call, Reply


class AddToMemoryRequest(Record, kw_only=True):
    session_id: str


async def add_session_to_memory(call: Call) -> AnyReply:
    body: AddToMemoryRequest = call.body
    key = {"app_name": call.path["app_name"], "user_id": call.path["user_id"], "session_id": body.session_id}
    session = await call.rooms.sessions.get_session(**key)
    if session is None:
        raise SessionNotFound(**key)
    await call.rooms.memory.add_session_to_memory(session)
    return Reply(value=None)
