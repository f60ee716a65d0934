"""The pages that come with the server: one file each, nothing loaded from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from greenroom.server.call import AnyReply, Call, Reply


async def redirect(call: Call) -> AnyReply:
    return Reply(data=b"", status=307, media_type="text/plain", headers={"location": "/dev-ui/"})


async def dev_ui_page(call: Call) -> AnyReply:
    return _page("dev_ui")


async def docs_page(call: Call) -> AnyReply:
    return _page("docs")


async def openapi(call: Call) -> AnyReply:
    return Reply(data=call.interface)


async def sign_in_page(call: Call) -> AnyReply:
    return _page("sign_in")


def _page(name: str) -> Reply:
    return Reply(data=_read(name), media_type="text/html; charset=utf-8", headers={"cache-control": "no-cache"})


@cache
def _read(name: str) -> bytes:
    return (files("greenroom.server") / "pages" / f"{name}.html").read_bytes()
