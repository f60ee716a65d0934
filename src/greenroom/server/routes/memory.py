"""Memory: a session remembered."""

from __future__ import annotations

from greenroom.errors import SessionNotFound
from greenroom.records.base import Record
from greenroom.server.call import AnyReply, Call, Reply


class AddToMemoryRequest(Record, kw_only=True):
    session_id: str


async def add_session_to_memory(call: Call) -> AnyReply:
    body: AddToMemoryRequest = call.body
    app_name, user_id = call.path["app_name"], call.path["user_id"]
    session = await call.sessions.get_session(app_name=app_name, user_id=user_id, session_id=body.session_id)
    if session is None:
        raise SessionNotFound(app_name, user_id, body.session_id)
    await call.memory.add_session_to_memory(session)
    return Reply(value=None)
