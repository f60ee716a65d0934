"""The web page: what runs here and how to call it."""

from __future__ import annotations

from greenroom.server.call import AnyReply, Call, Reply
from greenroom.server.pages import page_reply


async def redirect(call: Call) -> AnyReply:
    return Reply(data=b"", status=307, media_type="text/plain", headers={"location": "/dev-ui/"})


async def page(call: Call) -> AnyReply:
    return page_reply("dev_ui")
