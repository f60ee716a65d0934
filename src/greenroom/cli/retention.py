"""`greenroom retention`: the sessions of an app that would be deleted now, since they are too old."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli.parameters import ApiKey, client_for
from greenroom.cli.terminal import note, print_table

if TYPE_CHECKING:
    from greenroom.records.retention import RetentionPreview


def retention(
    app: Annotated[str, Parameter(name="APP", help="The app.")],
    /,
    *,
    url: Annotated[str, Parameter(env_var="GREENROOM_URL", help="The URL of the server.")] = "http://127.0.0.1:8000",
    api_key: ApiKey = None,
) -> None:
    """List the sessions that a running server would delete now, by the app's `session_ttl_seconds`. Deletes nothing.

    greenroom retention weather --url https://agents.example.com
    """

    async def ask() -> RetentionPreview:
        async with client_for(url, api_key) as client:
            return await client.preview_retention(app_name=app)

    preview = asyncio.run(ask())
    if preview.session_ttl_seconds is None:
        note("The app keeps its sessions for ever.")
        return

    rows = [
        (
            session.user_id,
            session.session_id,
            datetime.fromtimestamp(session.last_update_time).strftime("%Y-%m-%d %H:%M:%S"),
            "kept: a run is unfinished" if session.is_kept else "",
        )
        for session in preview.sessions
    ]
    if rows:
        print_table(("user", "session", "last update", ""), rows)
    days = preview.session_ttl_seconds / 86_400
    note(f"{preview.expired} sessions without an update for {days:g} days would be deleted, {preview.kept} kept.")
