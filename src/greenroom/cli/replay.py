"""`greenroom replay`: have recorded conversations again, and see whether anything is different."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli.run import find_app
from greenroom.cli.terminal import note, output, printable
from greenroom.errors import CallerError, ReplayConfigError

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.cli.recorded_case import RecordedCase
    from greenroom.records.session import Session


def replay(
    agent: Annotated[str, Parameter(name="AGENT")],
    /,
    *paths: Annotated[Path, Parameter(name="PATH")],
    run_tools: bool = True,
    verify_requests: bool = True,
) -> None:
    """Have recorded conversations again on the recorded answers, and show what is different.

    No model is reached. Ends with 1 when a conversation differs, or when there is none.

        greenroom replay examples/help_desk recordings

    Parameters
    ----------
    agent
        A folder with an `agent.py`, or a folder of such folders with the name of the one that is meant:
        `agents:weather`.
    paths
        Folders that `greenroom record` wrote, or folders of such folders.
    run_tools
        Run the tools for their side effects; their recorded results count all the same.
    verify_requests
        Whether a request to a model must be the one that was recorded.
    """
    from greenroom.cli.recorded_case import cases_in

    app = find_app(agent)
    cases = cases_in(paths)
    if not cases:
        raise CallerError(f"There are no recordings in {', '.join(map(str, paths)) or 'no folder at all'}")
    failures = asyncio.run(_replay_all(app, cases, run_tools=run_tools, verify_requests=verify_requests))
    output.print(f"{len(cases) - failures} passed, {failures} failed", markup=False)
    if failures:
        sys.exit(1)


async def _replay_all(app: App, cases: list[RecordedCase], *, run_tools: bool, verify_requests: bool) -> int:
    from greenroom.models.by_name import LLMRegistry

    failures = 0
    try:
        for case in cases:
            wrong = await _difference(app, case, run_tools=run_tools, verify_requests=verify_requests)
            output.print(printable(f"{'✗' if wrong else '✓'} {case.name}"), markup=False)
            if wrong:
                note(wrong, "red")
                failures += 1
    finally:
        await LLMRegistry.close()
    return failures


async def _difference(app: App, case: RecordedCase, *, run_tools: bool, verify_requests: bool) -> str:
    """What is different, or went wrong; empty when nothing did."""
    from greenroom.plugins.replay import ReplayPlugin, comparable_events, comparable_state, difference

    plugin = ReplayPlugin(run_tools=run_tools, verify_requests=verify_requests)
    try:
        then = case.session()
        now = await _talk(dataclasses.replace(app, plugins=[plugin, *app.plugins]), case)
    except Exception as error:  # agents and tools raise anything, and the other conversations are to be had, too
        return f"{type(error).__name__}: {error}"
    if then is None:
        return ""
    return difference(
        {"events": comparable_events(then.events), "state": comparable_state(then.state)},
        {"events": comparable_events(now.events), "state": comparable_state(now.state)},
    )


async def _talk(app: App, case: RecordedCase) -> Session:
    from greenroom.cli.recorded_case import with_open_calls
    from greenroom.plugins.recordings_file import REPLAY_CONFIG
    from greenroom.records.run import RunConfig, StreamingMode
    from greenroom.runner.in_memory import InMemoryRunner

    spec = case.spec()
    if spec.agent != app.name:
        raise ReplayConfigError(f"It was recorded with the app {spec.agent!r}, not with {app.name!r}")
    runner = InMemoryRunner(app=app)
    user_id = "adk_conformance_test_user"
    store = runner.session_service
    session = await store.create_session(app_name=app.name, user_id=user_id, state=spec.initial_state)
    try:
        for turn, message in enumerate(spec.user_messages):
            settings = {"dir": str(case.folder), "user_message_index": turn, "streaming_mode": case.mode}
            async for _ in runner.run_async(
                user_id=user_id,
                session_id=session.id,
                new_message=with_open_calls(message.as_content(), session.events),
                state_delta={**(message.state_delta or {}), REPLAY_CONFIG: settings},
                run_config=RunConfig(streaming_mode=StreamingMode.SSE if case.mode == "sse" else StreamingMode.NONE),
            ):
                pass
            session = await store.get_session(app_name=app.name, user_id=user_id, session_id=session.id) or session
    finally:
        await runner.close()
    return session
