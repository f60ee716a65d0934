"""Decides with which version of its app a run continues that waited, or was cut off, while the code changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from greenroom.errors import AppLoadError, AppVersionChanged
from greenroom.records.run import Run
from greenroom.records.session import Session, SessionKey
from greenroom.runner.runner import Runner
from greenroom.runs.run_config import run_config_of
from greenroom.runs.runner_cache import RunnerCache, version_of
from greenroom.runs.traffic import TrafficSplitter

_log = logging.getLogger("greenroom.runs")


class AppVersions:
    """Continues runs of published versions with them, and applies `App.on_version_change` to others.

    open_session: opens a session with all its events.
    """

    def __init__(
        self, runners: RunnerCache, traffic: TrafficSplitter, open_session: Callable[[SessionKey], Awaitable[Session]]
    ) -> None:
        self._runners = runners
        self._traffic = traffic
        self._open_session = open_session

    async def runner_for(self, run: Run, runner: Runner, session: Session, *, is_unfinished: bool = False) -> Runner:
        """The runner with which the run continues: the given one, of the version that serves the session now, or that
        of the run's version.

        is_unfinished: the run was cut off; else it waits. Raises AppVersionChanged.
        """
        now = version_of(runner)
        was = run.app_version
        if runner.app is None or was is None or now is None or was == now:
            return runner

        published = await self._published_runner(run, was)
        if published is not None:
            return published

        policy = runner.app.on_version_change
        if policy == "continue":
            _log.warning("run %s began with version %s of app %s, continues with %s", run.id, was, run.app_name, now)
            return runner

        from greenroom.runner.version_replay import find_difference  # most apps continue all runs

        if session.events.skipped:
            session = await self._open_session(session.key)
        config = run_config_of(run.request, runner.run_config, 0) if run.request is not None else runner.run_config
        difference = await find_difference(
            runner.app,
            session,
            run.id,
            run_config=config,
            is_unfinished=is_unfinished,
        )
        if difference is None:
            _log.info("run %s continues with version %s of app %s: its replay is equal", run.id, now, run.app_name)
            return runner

        pinned = await self._runners.of_version(run.app_name, was) if policy == "pin" else None
        if pinned is None:
            raise AppVersionChanged(run.id, was, now, policy=policy, seq=difference.seq, difference=difference.text)
        _log.info("run %s continues with version %s of app %s, not %s", run.id, was, run.app_name, now)
        return pinned

    async def _published_runner(self, run: Run, version: str) -> Runner | None:
        """None for a version that isn't published, or can't be loaded here."""
        if not await self._traffic.is_published(run.app_name, version):
            return None
        try:
            return await self._runners.of_published(run.app_name, version)
        except AppLoadError as error:
            _log.warning("run %s can't continue with its version: %s", run.id, error)
            return None

    async def exchange(self, run: Run, runner: Runner, session: Session) -> Runner:
        """`runner_for` a run that was cut off and that holds the given runner. It holds the returned one instead."""
        chosen = await self.runner_for(run, runner, session, is_unfinished=True)
        if chosen is not runner:
            self._runners.retain(chosen)
            self._runners.release(runner)
        return chosen
