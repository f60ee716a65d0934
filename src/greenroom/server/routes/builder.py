"""ADK's visual editor and its recorded tests, which this server does not have: the page hides what it doesn't find."""

from __future__ import annotations

from greenroom.errors import NotOffered
from greenroom.server.call import AnyReply, Call, Reply


async def get_builder_file(call: Call) -> AnyReply:
    """Nothing: the page then switches its editor off."""
    return Reply(data=b"", media_type="text/plain; charset=utf-8")


async def save_builder_files(call: Call) -> AnyReply:
    raise NotOffered("Agents can't be edited through this server")


async def cancel_builder_draft(call: Call) -> AnyReply:
    """There never is a draft."""
    return Reply(value=True)
