"""`greenroom record` and `greenroom replay`: conversations as files."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder, sessions
from greenroom.cli.run import find_app
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError, ReplayConfigError

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.evaluation.recorded_case import RecordedCase
    from greenroom.records.base import JsonObject
    from greenroom.records.session import Session
    from greenroom.sessions.service import BaseSessionService


def record(
    agent: Annotated[str, Parameter(name="AGENT")],
    /,
    *messages: Annotated[str, Parameter(name="MESSAGE")],
    to: Path,
    stream: bool = False,
    session: str | None = None,
    run: str | None = None,
    session_service: str | None = None,
    user: str | None = None,
) -> None:
    """Keep a conversation as files that can be replayed without a model.

    With messages, the agent answers them, one after the other, and every request to its models and tools is recorded
    with its answer. With --session, a conversation that was had already is taken from its store; its requests are not
    known any more, its answers are.

        greenroom record examples/help_desk "My last bill is too high" --to recordings/billing/too_high

        greenroom record examples:help_desk --session 0198c1b2 --to recordings/billing/ada

    Parameters
    ----------
    agent
        A folder with an `agent.py`, or a folder of such folders with the name of the one that is meant:
        `agents:weather`.
    messages
        What to say to the agent.
    to
        The folder to write to; an earlier recording there is replaced.
    stream
        Let the models stream, and record every chunk.
    session
        The id of a stored conversation, or how it begins.
    run
        The invocation id of the run of that conversation to end with.
    session_service
        Where it is kept: `sqlite:///file.db`. Else: in `.greenroom/greenroom.db` of the folder that was served.
    user
        The user it belongs to.
    """
    from greenroom.evaluation.recorded_case import RecordedCase

    if bool(messages) == bool(session):
        raise CallerError("Say something to record, or name a stored conversation with --session")
    if session is not None and stream:
        raise CallerError("A stored conversation has no chunks; leave --stream out")
    app = find_app(agent)
    case = RecordedCase(to.resolve(), "sse" if stream else "none")
    case.clear()
    if session is not None:
        store = sessions.open_store(_served_folder(agent), session_service)
        asyncio.run(_export(case, store, app.name, user, session, run))
    elif not asyncio.run(_converse(case, app, messages)):
        sys.exit(1)
    note(f"Recorded in {to}; run it again with: greenroom replay {agent} {to}")


def _served_folder(agent: str) -> Path:
    folder = Path(agent.rpartition(":")[0] or agent)
    return folder.parent if (folder / "agent.py").exists() else folder


async def _converse(case: RecordedCase, app: App, messages: tuple[str, ...]) -> bool:
    """Whether it went well to its end."""
    from greenroom.cli.event_lines import EventLines
    from greenroom.evaluation.recorded_case import UserMessage, spec_of
    from greenroom.evaluation.replay import Talk
    from greenroom.models.by_name import LLMRegistry
    from greenroom.plugins.recording import RecordingsPlugin
    from greenroom.plugins.recordings_file import RECORDINGS_CONFIG

    recorded = dataclasses.replace(app, plugins=[RecordingsPlugin(), *app.plugins])
    lines = EventLines()

    def settings(turn: int) -> JsonObject:
        return {RECORDINGS_CONFIG: {"dir": str(case.folder), "user_message_index": turn, "streaming_mode": case.mode}}

    said = [UserMessage(text=text) for text in messages]
    async with data_folder.closing(LLMRegistry):
        try:
            talk = Talk(recorded, streams=case.mode == "sse", show=lines.show)
            session = await talk.have(said, settings=settings, goes_on=lambda: not lines.has_failed)
        finally:
            lines.end_line()
    if not lines.has_failed:
        case.write(spec_of(session), session)
    return not lines.has_failed


async def _export(
    case: RecordedCase, store: BaseSessionService, app_name: str, user: str | None, session_id: str, run: str | None
) -> None:
    from greenroom.evaluation.recorded_case import spec_of
    from greenroom.plugins.recording import recording_of
    from greenroom.plugins.recordings_file import dump_recordings

    async with data_folder.closing(store):
        session = await _read(store, await sessions.find_session(store, [app_name], user, session_id))
    if run is not None:
        _end_with(session, run)
    case.recordings_path.write_text(dump_recordings(recording_of(session)), encoding="utf-8")
    case.write(spec_of(session), session)


async def _read(store: BaseSessionService, listed: Session) -> Session:
    session = await store.get_session(**listed.key._asdict())
    if session is None:
        raise CallerError(f"Session {listed.id!r} was deleted meanwhile")
    return session


def _end_with(session: Session, run: str) -> None:
    """Removes events after a run."""
    last = max((i for i, event in enumerate(session.events) if event.invocation_id == run), default=None)
    if last is None:
        raise CallerError(f"There is no run {run!r} in session {session.id!r}")
    del session.events[last + 1 :]


def replay(
    agent: Annotated[str, Parameter(name="AGENT")],
    /,
    *paths: Annotated[Path, Parameter(name="PATH")],
    run_tools: bool = True,
    verify_requests: bool = True,
    session: tuple[str, ...] = (),
    newest: int = 0,
    own_model: bool = False,
    session_service: str | None = None,
    user: str | None = None,
) -> None:
    """Have recorded conversations again on the recorded answers, and show what is different.

    No model is reached. Ends with 1 when a conversation differs, or when there is none. With --session or --newest,
    stored conversations are taken instead of recordings; their tools do not run, and where the agent, which may have
    changed since, departs first from each of them is shown.

        greenroom replay examples/help_desk recordings

        greenroom replay examples:help_desk --newest 100 --own-model

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
    session
        The id of a stored conversation, or how it begins.
    newest
        So many stored conversations, the latest.
    own_model
        Stored conversations: ask the agent's model again; only the tools' results are those of then.
    session_service
        Where they are kept: `sqlite:///file.db`. Else: in `.greenroom/greenroom.db` of the folder that was served.
    user
        The user they belong to.
    """
    from greenroom.evaluation.recorded_case import cases_in

    app = find_app(agent)
    if session or newest or own_model:
        if paths:
            raise CallerError("Give either folders with recordings, or --session or --newest")
        store = sessions.open_store(_served_folder(agent), session_service)
        _report(*asyncio.run(_replay_stored(app, store, user, session, newest, own_model=own_model)))
        return
    cases = cases_in(paths)
    if not cases:
        raise CallerError(f"There are no recordings in {', '.join(map(str, paths)) or 'no folder at all'}")
    failures = asyncio.run(_replay_all(app, cases, run_tools=run_tools, verify_requests=verify_requests))
    _report(len(cases), failures)


def _report(total: int, failures: int) -> None:
    print_line(f"{total - failures} passed, {failures} failed")
    if failures or not total:
        sys.exit(1)


def _show(name: str, wrong: str) -> bool:
    print_line(f"{'✗' if wrong else '✓'} {name}")
    if wrong:
        note(wrong, "red")
    return bool(wrong)


async def _replay_all(app: App, cases: list[RecordedCase], *, run_tools: bool, verify_requests: bool) -> int:
    from greenroom.models.by_name import LLMRegistry

    failures = 0
    async with data_folder.closing(LLMRegistry):
        for case in cases:
            wrong = await _difference(app, case, run_tools=run_tools, verify_requests=verify_requests)
            failures += _show(case.name, wrong)
    return failures


async def _replay_stored(
    app: App, store: BaseSessionService, user: str | None, wanted: tuple[str, ...], newest: int, *, own_model: bool
) -> tuple[int, int]:
    """Returns the number of conversations, and of those that departed."""
    from greenroom.evaluation.replay import replay_session, rerun_session
    from greenroom.models.by_name import LLMRegistry

    departed = 0
    async with data_folder.closing(store, LLMRegistry):
        listed = [await sessions.find_session(store, [app.name], user, one) for one in wanted]
        listed += [one async for one in sessions.newest(store, app.name, user, newest)]
        for one in listed:
            session = await _read(store, one)
            departed += _show(one.id, await (rerun_session if own_model else replay_session)(app, session))
    return len(listed), departed


async def _difference(app: App, case: RecordedCase, *, run_tools: bool, verify_requests: bool) -> str:
    """The differences or the error of a replay; empty when it matches."""
    from greenroom.evaluation.replay import Talk
    from greenroom.plugins.recordings_file import load_recordings
    from greenroom.plugins.replay import ReplayPlugin, comparable_events, comparable_state, difference

    plugin = ReplayPlugin(run_tools=run_tools, verify_requests=verify_requests)
    try:
        then, spec = case.session(), case.spec()
        if spec.agent != app.name:
            raise ReplayConfigError(f"It was recorded with the app {spec.agent!r}, not with {app.name!r}")
        replayed = dataclasses.replace(app, plugins=[plugin, *app.plugins])
        recordings = load_recordings(case.recordings_path).recordings
        talk = Talk(replayed, streams=case.mode == "sse", replay=plugin, recordings=recordings)
        now = await talk.have(spec.user_messages, state=spec.initial_state)
    except Exception as error:  # agents and tools may raise any exception; the other conversations are still replayed
        return f"{type(error).__name__}: {error}"
    if then is None:
        return ""
    return difference(
        {"events": comparable_events(then.events), "state": comparable_state(then.state)},
        {"events": comparable_events(now.events), "state": comparable_state(now.state)},
    )
