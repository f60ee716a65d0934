"""Saves the files of a user's message as artifacts."""

from __future__ import annotations

import logging

from greenroom.invocation.context import InvocationContext
from greenroom.records.content import Content, Part

_log = logging.getLogger("greenroom.runner")


async def save_blobs(message: Content, ctx: InvocationContext, request_id: str) -> tuple[Content, dict[str, int]]:
    """The message with a text instead of each file, and the versions that were saved, by name.

    request_id: a part of the names.
    Without an artifact service the message stays as it is.
    """
    parts = list(message.parts or ())
    files = [at for at, part in enumerate(parts) if part.inline_data is not None]
    if not files:
        return message, {}
    if ctx.artifact_service is None:
        _log.warning("files of run %s stay in its message: there is no artifact service", ctx.invocation_id)
        return message, {}
    versions: dict[str, int] = {}
    for at in files:
        name = f"artifact_{request_id}_{at}"
        key = ctx.session.key._asdict()
        versions[name] = await ctx.artifact_service.save_artifact(**key, filename=name, artifact=parts[at])
        parts[at] = Part(text=f"Uploaded file: {name}. It was saved as an artifact.")
    return Content(role=message.role, parts=parts), versions
