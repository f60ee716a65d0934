"""The interface, described for machines and for people."""

from __future__ import annotations

from greenroom.server.call import AnyReply, Call, Reply
from greenroom.server.pages import page_reply


async def openapi(call: Call) -> AnyReply:
    return Reply(data=call.interface)


async def page(call: Call) -> AnyReply:
    return page_reply("docs")
