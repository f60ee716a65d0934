"""`greenroom runs`: list the runs of a server, and retry failed ones."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import App, Parameter

from greenroom.cli.parameters import ApiKey, ServerUrl, client_for
from greenroom.cli.terminal import note, print_table
from greenroom.errors import CallerError, GreenroomError

if TYPE_CHECKING:
    from greenroom.records.run import RefusedRetry, Run, RunStatus

AppName: TypeAlias = Annotated[str | None, Parameter(name="--app", help="Only runs of this app.")]
UserId: TypeAlias = Annotated[str | None, Parameter(name="--user", help="Only runs of this user.")]
SessionId: TypeAlias = Annotated[str | None, Parameter(name="--session", help="Only runs of this session.")]
ErrorCode: TypeAlias = Annotated[
    str | None, Parameter(name="--error-code", help="Only runs that failed with this error, for example `RunGivenUp`.")
]
Status: TypeAlias = Literal["queued", "running", "waiting", "succeeded", "failed", "cancelled"]

app = App(name="runs", help="List the runs of a server, and retry failed ones.")


@app.command(name="list")
def list_runs(
    *,
    url: ServerUrl = None,
    api_key: ApiKey = None,
    app_name: AppName = None,
    user: UserId = None,
    session: SessionId = None,
    status: Annotated[tuple[Status, ...], Parameter(help="Only runs with this status. May be repeated.")] = (),
    error_code: ErrorCode = None,
    limit: int = 100,
) -> None:
    """List the runs of a server, newest first, with the errors that failed them.

        greenroom runs list --url https://agents.example.com --status failed

    Parameters
    ----------
    limit
        Maximum number of runs.
    """
    from greenroom.records.run import RunStatus

    statuses = [RunStatus(one) for one in status]
    listed = asyncio.run(_listed(_server(url), api_key, app_name, user, session, statuses, error_code, limit))
    if not listed:
        note("No runs.")
        return
    print_table(("id", "app", "user", "session", "status", "created", "error"), [_row(run) for run in listed])


@app.command
def retry(
    *run_ids: Annotated[str, Parameter(name="RUN", help="A run to retry.")],
    url: ServerUrl = None,
    api_key: ApiKey = None,
    app_name: AppName = None,
    user: UserId = None,
    session: SessionId = None,
    error_code: ErrorCode = None,
    fork: bool = False,
) -> None:
    """Continue failed runs from where they ended: those that are named, or all that a filter selects.

        greenroom runs retry e-0198c1b2 --url https://agents.example.com

        greenroom runs retry --error-code RunGivenUp --url https://agents.example.com

    Prints each run that was started. Runs that are refused are reported with the reason, and the exit code is 1.

    Parameters
    ----------
    fork
        Continue in forks of the sessions, by new runs.
    """
    filters = (app_name, user, session, error_code)
    if bool(run_ids) == any(filters):
        raise CallerError("Name the runs to retry, or a filter: --app, --user, --session or --error-code")
    server = _server(url)
    if run_ids:
        refused = asyncio.run(_retry_named(server, api_key, run_ids, fork))
    else:
        refused = asyncio.run(_retry_selected(server, api_key, app_name, user, session, error_code, fork))
    for one in refused:
        note(f"{one.run_id}: {one.detail}", "red")
    if refused:
        raise SystemExit(1)


def _server(url: str | None) -> str:
    if not url:
        raise CallerError("Name the server with --url or GREENROOM_URL")
    return url


async def _listed(
    url: str,
    api_key: str | None,
    app_name: str | None,
    user: str | None,
    session: str | None,
    statuses: list[RunStatus],
    error_code: str | None,
    limit: int,
) -> list[Run]:
    runs: list[Run] = []
    page_token: str | None = None
    async with client_for(url, api_key) as client:
        while len(runs) < limit:
            page = await client.list_runs(
                app_name=app_name,
                user_id=user,
                session_id=session,
                status=statuses,
                error_code=error_code,
                limit=limit - len(runs),
                page_token=page_token,
            )
            runs += page.runs
            page_token = page.next_page_token
            if page_token is None:
                break
    return runs


async def _retry_named(url: str, api_key: str | None, run_ids: tuple[str, ...], fork: bool) -> list[RefusedRetry]:
    from greenroom.records.run import RefusedRetry

    refused: list[RefusedRetry] = []
    async with client_for(url, api_key) as client:
        for run_id in run_ids:
            try:
                _report(await client.retry_run(run_id, fork=fork))
            except GreenroomError as error:
                refused.append(RefusedRetry(run_id=run_id, code=error.code, detail=error.detail))
    return refused


async def _retry_selected(
    url: str,
    api_key: str | None,
    app_name: str | None,
    user: str | None,
    session: str | None,
    error_code: str | None,
    fork: bool,
) -> list[RefusedRetry]:
    refused: list[RefusedRetry] = []
    page_token: str | None = None
    async with client_for(url, api_key) as client:
        while True:
            page = await client.retry_runs(
                app_name=app_name,
                user_id=user,
                session_id=session,
                error_code=error_code,
                fork=fork,
                page_token=page_token,
            )
            for run in page.started:
                _report(run)
            refused += page.refused
            page_token = page.next_page_token
            if page_token is None:
                return refused


def _report(run: Run) -> None:
    print(run.id)


def _row(run: Run) -> tuple[str, ...]:
    return (
        run.id,
        run.app_name,
        run.user_id,
        run.session_id,
        run.status.value,
        datetime.fromtimestamp(run.created_at).strftime("%Y-%m-%d %H:%M:%S"),
        "" if run.error is None else f"{run.error.code}: {run.error.message}",
    )
