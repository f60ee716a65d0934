"""Whether the server lives, and what it is."""

from __future__ import annotations

import platform

from greenroom.server.call import AnyReply, Call, Reply
from greenroom.version import __version__


async def health(call: Call) -> AnyReply:
    return Reply(value={"status": "ok"})


async def version(call: Call) -> AnyReply:
    python = platform.python_version()
    return Reply(value={"version": __version__, "language": "python", "language_version": python})
