"""Whether the server lives, and what it is."""

from __future__ import annotations

import platform

from greenroom.errors import Unavailable
from greenroom.server.call import AnyReply, Call, Reply
from greenroom.version import __version__


async def health(call: Call) -> AnyReply:
    return Reply(value={"status": "ok"})


async def ready(call: Call) -> AnyReply:
    """Whether a run could be served now."""
    silent = await call.stores_not_ready()
    if silent:
        raise Unavailable(f"Not ready: no answer from the store of {' and '.join(silent)}")
    return Reply(value={"status": "ok"})


async def version(call: Call) -> AnyReply:
    python = platform.python_version()
    return Reply(value={"version": __version__, "language": "python", "language_version": python})
