"""`greenroom users`: the data that the apps of a running server have of their users."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from cyclopts import App, Parameter

from greenroom.cli.parameters import ApiKey, client_for
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.records.user_data import ErasedData, ErasureReport

app = App(name="users", help="Export and erase the data of users on a running server.")

Url: TypeAlias = Annotated[str, Parameter(name="--url", env_var="GREENROOM_URL", help="The URL of the server.")]
AppName: TypeAlias = Annotated[str, Parameter(name="APP", help="The app.")]
UserId: TypeAlias = Annotated[str, Parameter(name="USER", help="The user's ID.")]

_DEFAULT_URL = "http://127.0.0.1:8000"


@app.command
def export(
    app: AppName, user: UserId, /, *, output: Path | None = None, url: Url = _DEFAULT_URL, api_key: ApiKey = None
) -> None:
    """Export all data of a user in an app as a zip file.

        greenroom users export weather ada --output ada.zip

    Parameters
    ----------
    output
        The zip file. Default: `APP-USER.zip` in this folder.
    """
    file = output or Path(f"{app}-{user}.zip".replace("/", "_"))

    async def write() -> None:
        async with client_for(url, api_key) as client:
            await client.export_user(file, app_name=app, user_id=user)

    asyncio.run(write())
    note(f"exported to {file}")


@app.command
def erase(
    app: AppName,
    user: UserId,
    /,
    *,
    yes: bool = False,
    json: bool = False,
    url: Url = _DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Erase all data of a user in an app: sessions, runs, state, memories, artifacts, credentials, schedules, feedback.

    Running runs of the user are cancelled. Nothing can be restored. The report shows for each kind of data how much was
    found, deleted, kept and left. The exit code is 1 if something is left; the command can be repeated.

        greenroom users erase weather ada

    Parameters
    ----------
    yes
        Don't ask for a confirmation.
    json
        Print the report as JSON.
    """
    if not yes and not _is_confirmed(app, user):
        raise CallerError("Nothing was erased. `--yes` erases without a question")

    async def delete() -> ErasureReport:
        async with client_for(url, api_key) as client:
            return await client.delete_user(app_name=app, user_id=user)

    report = asyncio.run(delete())
    if json:
        from greenroom.records import wire

        print_line(wire.encode(report).decode())
    else:
        print_table(("data", "found", "deleted", "kept", "left", ""), [_row(one) for one in report.data])
        for remark in report.notes:
            note(remark)
    if not report.is_complete:
        raise CallerError("Something is left. Repeat the command when the user's runs have ended")


def _is_confirmed(app: str, user: str) -> bool:
    if not sys.stdin.isatty():
        return False
    answer = input(f"Erase all data of user {user!r} in app {app!r}? Type the user's ID: ")
    return answer == user


def _row(one: ErasedData) -> tuple[str, ...]:
    return (
        one.kind.replace("_", " "),
        str(one.found),
        str(one.deleted),
        str(one.kept),
        str(one.left),
        one.reason or "",
    )
