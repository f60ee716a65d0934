"""`greenroom check --waiting`: replays the waiting runs of a database with the apps of a folder, or those of a server
with the apps that it has loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.cli import data_folder, database, sessions
from greenroom.cli.parameters import client_for
from greenroom.cli.serving import session_service_of
from greenroom.cli.terminal import note, print_table
from greenroom.errors import AppLoadError, AppNotFound

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.apps.loader import AppLoader
    from greenroom.client.async_client import AsyncClient
    from greenroom.records.run import Run
    from greenroom.records.waiting_run import WaitingRun
    from greenroom.sessions.service import BaseSessionService
    from greenroom.versions.store import VersionStore


def check_waiting(agents_dir: Path, session_service: str | None, limit: int) -> None:
    """Prints a table of the waiting runs. Exits with 1 if one would differ."""
    _report(asyncio.run(_compared(agents_dir, session_service, limit)))


def check_waiting_of_server(url: str, api_key: str | None, limit: int) -> None:
    """Does the same with the apps and runs of a running server."""
    _report(asyncio.run(_compared_by_server(url, api_key, limit)))


def _report(compared: list[WaitingRun]) -> None:
    if not compared:
        note("No run waits.")
        return

    columns = ("app", "run", "waiting since", "for", "on_version_change", "replay")
    print_table(columns, [_row(waiting) for waiting in compared])
    different = sum(waiting.difference is not None for waiting in compared)
    note(f"waiting: {len(compared)}; different: {different}")
    if different:
        sys.exit(1)


async def _compared(agents_dir: Path, uri: str | None, limit: int) -> list[WaitingRun]:
    """Raises CallerError for a database that this release would upgrade."""
    from greenroom.models.by_name import LLMRegistry
    from greenroom.records.run import RunFilter, RunStatus
    from greenroom.runs.engine import run_store_beside

    store = sessions.open_store(agents_dir, uri)
    if store.is_remote:
        store.server_database = str(data_folder.database_path(agents_dir))
    else:
        await database.check_schema(session_service_of(agents_dir, uri))

    runs = run_store_beside(store)
    with contextlib.closing(_apps_of(agents_dir)) as apps:
        async with data_folder.closing(runs, store, LLMRegistry):
            names = apps.list_apps()
            listed = await runs.list_runs(RunFilter(app_names=names, statuses=[RunStatus.WAITING]), limit=limit)
            return [await _compare(run, apps, store, runs.versions) for run in listed.runs]


async def _compared_by_server(url: str, api_key: str | None, limit: int) -> list[WaitingRun]:
    client = client_for(url, api_key)
    try:
        compared: list[WaitingRun] = []
        for app_name in await client.list_apps():
            compared += await _compared_of_app(client, app_name, limit - len(compared))
        return compared
    finally:
        await client.close()


async def _compared_of_app(client: AsyncClient, app_name: str, limit: int) -> list[WaitingRun]:
    from greenroom.records.run import RunStatus
    from greenroom.records.waiting_run import VersionDifference, WaitingRun

    compared: list[WaitingRun] = []
    page_token: str | None = None
    try:
        while len(compared) < limit:
            page = await client.list_waiting_runs(
                app_name, limit=min(limit - len(compared), 100), page_token=page_token
            )
            compared += page.waiting_runs
            page_token = page.next_page_token
            if page_token is None:
                break
    except AppLoadError as error:
        failed = VersionDifference(seq=0, text=error.detail)
        waiting = await client.list_runs(app_name=app_name, status=[RunStatus.WAITING], limit=max(limit, 1))
        return [WaitingRun(run=run, difference=failed) for run in waiting.runs]
    return compared


def _apps_of(agents_dir: Path) -> AppLoader:
    """The apps of a folder, or of the wheels and zip archives in it."""
    from greenroom.apps.load_built import BuiltOutputLoader
    from greenroom.apps.load_directory import DirectoryAppLoader

    apps = DirectoryAppLoader(agents_dir)
    if apps.list_apps():
        return apps
    return BuiltOutputLoader(build_output_dirs=[agents_dir.resolve()], source_dir=agents_dir)


async def _compare(run: Run, apps: AppLoader, store: BaseSessionService, versions: VersionStore) -> WaitingRun:
    from greenroom.records.waiting_run import VersionDifference, WaitingRun
    from greenroom.runs.waiting_runs import compare

    session = await store.get_session(**run.session_key._asdict())
    try:
        app: App = apps.load(run.app_name)
    except (AppLoadError, AppNotFound) as error:
        failed = VersionDifference(seq=0, text=error.detail)
        return WaitingRun(run=run, difference=failed)
    if session is None:
        failed = VersionDifference(seq=0, text="the session was deleted")
        return WaitingRun(run=run, version=app.version, difference=failed)
    published = await versions.find(run.app_name, run.app_version) if run.app_version is not None else None
    return await compare(run, app, session, is_published=published is not None)


def _row(waiting: WaitingRun) -> tuple[str, ...]:
    run = waiting.run
    since = run.ended_at or run.created_at
    return (
        run.app_name,
        run.id,
        datetime.fromtimestamp(since).strftime("%Y-%m-%d %H:%M:%S"),
        ", ".join(waiting.waits_for),
        waiting.on_version_change or "",
        _replay(waiting),
    )


def _replay(waiting: WaitingRun) -> str:
    difference = waiting.difference
    if difference is not None:
        return f"different at event {difference.seq}: {difference.text}" if difference.seq else difference.text
    return "same version" if waiting.run.app_version == waiting.version else "equal"
