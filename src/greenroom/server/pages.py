"""The pages that come with the server: one file each, nothing loaded from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from greenroom.server.call import Reply


def page_reply(name: str) -> Reply:
    return Reply(data=_page(name), media_type="text/html; charset=utf-8", headers={"cache-control": "no-cache"})


@cache
def _page(name: str) -> bytes:
    return (files("greenroom.server") / "pages" / f"{name}.html").read_bytes()
