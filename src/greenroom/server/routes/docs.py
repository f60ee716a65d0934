"""The interface, described for machines and for people."""

from __future__ import annotations

from functools import cache

from greenroom.records import wire
from greenroom.server.call import AnyReply, Call, Reply
from greenroom.server.openapi import build_openapi
from greenroom.server.pages import page_reply


async def openapi(call: Call) -> AnyReply:
    return Reply(data=_document())


async def page(call: Call) -> AnyReply:
    return page_reply("docs")


@cache
def _document() -> bytes:
    from greenroom.server.endpoints import ENDPOINTS  # the table names this module's handlers

    return wire.encode(build_openapi(ENDPOINTS))
