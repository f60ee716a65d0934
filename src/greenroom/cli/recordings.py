"""`greenroom record` and `greenroom replay`: conversations as files."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder, sessions
from greenroom.cli.find_agent import find_app
from greenroom.cli.parameters import AgentPath, SessionStore
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError, ReplayConfigError

if TYPE_CHECKING:
    from greenroom.apps.app import App
    from greenroom.evaluation.recorded_case import RecordedCase
    from greenroom.records.base import JsonObject
    from greenroom.records.session import Session
    from greenroom.sessions.service import BaseSessionService


def record(
    agent: AgentPath,
    /,
    *messages: Annotated[str, Parameter(name="MESSAGE")],
    to: Path,
    stream: bool = False,
    session: str | None = None,
    run: str | None = None,
    session_service: SessionStore = None,
    user: str | None = None,
) -> None:
    """Record a conversation to files that can be replayed without a model.

    With messages, the agent answers them one after the other; every request to models and tools is recorded with its
    response. With `--session`, a stored conversation is exported. Its model answers are recorded; the requests are not
    available.

        greenroom record examples/help_desk "My last bill is too high" --to recordings/billing/too_high

        greenroom record examples:help_desk --session 0198c1b2 --to recordings/billing/ada

    Parameters
    ----------
    messages
        The messages to send to the agent.
    to
        The output folder. An earlier recording in it is replaced.
    stream
        Let the models stream, and record every chunk.
    session
        The session ID of a stored conversation, or the beginning of it.
    run
        The invocation ID of the last run to export. Default: all runs.
    user
        The user of the stored conversation.
    """
    from greenroom.evaluation.recorded_case import RecordedCase

    if bool(messages) == (session is not None):
        raise CallerError("Give either messages to record, or a stored conversation with --session")
    if stream and not messages:
        raise CallerError("--stream needs messages: a stored conversation has no chunks")

    app = find_app(agent)
    case = RecordedCase(to.resolve(), "sse" if stream else "none")
    case.clear()
    if session is not None:
        store = sessions.open_store(_agents_folder(agent), session_service)
        asyncio.run(_export(case, store, app.name, user, session, run))
    elif not asyncio.run(_converse(case, app, messages)):
        sys.exit(1)
    note(f"Recorded in {to}; replay it with: greenroom replay {agent} {to}")


def _agents_folder(agent: str) -> Path:
    """Returns the folder of agents in an AGENT argument."""
    folder = Path(agent.rpartition(":")[0] or agent)
    return folder.parent if (folder / "agent.py").exists() else folder


async def _converse(case: RecordedCase, app: App, messages: tuple[str, ...]) -> bool:
    """Has the conversation and records it. False if a turn failed; then nothing is written."""
    from greenroom.cli.event_lines import EventLines
    from greenroom.evaluation.recorded_case import UserMessage, spec_of
    from greenroom.evaluation.replay import ConversationRunner
    from greenroom.models.by_name import LLMRegistry
    from greenroom.plugins.recording import RecordingsPlugin
    from greenroom.plugins.recordings_file import RECORDINGS_CONFIG

    recorded = dataclasses.replace(app, plugins=[RecordingsPlugin(), *app.plugins])
    lines = EventLines()

    def settings(turn: int) -> JsonObject:
        return {RECORDINGS_CONFIG: {"dir": str(case.folder), "user_message_index": turn, "streaming_mode": case.mode}}

    user_messages = [UserMessage(text=text) for text in messages]
    async with data_folder.closing(LLMRegistry):
        try:
            runner = ConversationRunner(recorded, streams=case.mode == "sse", show=lines.show)
            session = await runner.run(user_messages, settings=settings, continues=lambda: not lines.has_failed)
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
        listed = await sessions.find_session(store, [app_name], user, session_id)
        session = await _read(store, listed)
    if run is not None:
        _drop_events_after(session, run)
    case.recordings_path.write_text(dump_recordings(recording_of(session)), encoding="utf-8")
    case.write(spec_of(session), session)


async def _read(store: BaseSessionService, listed: Session) -> Session:
    session = await store.get_session(**listed.key._asdict())
    if session is None:
        raise CallerError(f"Session {listed.id!r} was deleted in the meantime")
    return session


def _drop_events_after(session: Session, run: str) -> None:
    indexes = [index for index, event in enumerate(session.events) if event.invocation_id == run]
    if not indexes:
        raise CallerError(f"There is no run {run!r} in session {session.id!r}")
    del session.events[indexes[-1] + 1 :]


def replay(
    agent: AgentPath,
    /,
    *paths: Annotated[Path, Parameter(name="PATH")],
    run_tools: Annotated[bool, Parameter(negative="--no-run-tools")] = True,
    verify_requests: Annotated[bool, Parameter(negative="--no-verify-requests")] = True,
    session: tuple[str, ...] = (),
    newest: int = 0,
    own_model: bool = False,
    session_service: SessionStore = None,
    user: str | None = None,
) -> None:
    """Replay recorded conversations and show the differences.

    No model is called. Exits with 1 if a conversation differs or there is none.

    With `--session` or `--newest`, stored conversations are replayed instead of recordings. Their tools do not run. For
    each of them, the first step at which the current agent differs is shown.

        greenroom replay examples/help_desk recordings

        greenroom replay examples:help_desk --newest 100 --own-model

    Parameters
    ----------
    paths
        Folders that `greenroom record` wrote, or folders that contain such folders.
    run_tools
        Run the tools for their side effects. Their recorded results are used in any case.
    verify_requests
        Fail if a request to a model differs from the recorded one.
    session
        Replay this stored conversation: its session ID, or the beginning of it. May be repeated.
    newest
        Replay this many stored conversations, the newest ones.
    own_model
        With stored conversations: call the agent's model, and use only the recorded results of tools.
    user
        Only stored conversations of this user.
    """
    from greenroom.evaluation.recorded_case import cases_in

    app = find_app(agent)
    if session or newest or own_model:
        if paths:
            raise CallerError("Give either folders with recordings, or --session or --newest")
        store = sessions.open_store(_agents_folder(agent), session_service)
        total, failures = asyncio.run(_replay_stored(app, store, user, session, newest, own_model=own_model))
        _report(total, failures)
        return

    if not paths:
        raise CallerError("Give folders with recordings, or --session or --newest")
    cases = cases_in(paths)
    if not cases:
        raise CallerError(f"There are no recordings in {', '.join(map(str, paths))}")
    failures = asyncio.run(_replay_all(app, cases, run_tools=run_tools, verify_requests=verify_requests))
    _report(len(cases), failures)


def _report(total: int, failures: int) -> None:
    print_line(f"{total - failures} passed, {failures} failed")
    if failures or not total:
        sys.exit(1)


def _show(name: str, difference: str) -> bool:
    """Prints the result of one replay. True if it differs."""
    print_line(f"{'✗' if difference else '✓'} {name}")
    if difference:
        note(difference, "red")
    return bool(difference)


async def _replay_all(app: App, cases: list[RecordedCase], *, run_tools: bool, verify_requests: bool) -> int:
    """Returns how many recordings differ."""
    from greenroom.models.by_name import LLMRegistry

    failures = 0
    async with data_folder.closing(LLMRegistry):
        for case in cases:
            difference = await _difference(app, case, run_tools=run_tools, verify_requests=verify_requests)
            failures += _show(case.name, difference)
    return failures


async def _replay_stored(
    app: App, store: BaseSessionService, user: str | None, wanted: tuple[str, ...], newest: int, *, own_model: bool
) -> tuple[int, int]:
    """Returns the number of conversations, and how many of them differ."""
    from greenroom.evaluation.replay import replay_session, rerun_session
    from greenroom.models.by_name import LLMRegistry

    difference_of = rerun_session if own_model else replay_session
    failures = 0
    async with data_folder.closing(store, LLMRegistry):
        stored = [await sessions.find_session(store, [app.name], user, session_id) for session_id in wanted]
        stored += [listed async for listed in sessions.newest(store, app.name, user, newest)]
        for listed in stored:
            session = await _read(store, listed)
            failures += _show(listed.id, await difference_of(app, session))
    return len(stored), failures


async def _difference(app: App, case: RecordedCase, *, run_tools: bool, verify_requests: bool) -> str:
    """Returns the differences or the error of a replay; empty if there are none."""
    from greenroom.evaluation.replay import ConversationRunner
    from greenroom.plugins.recordings_file import load_recordings
    from greenroom.plugins.replay import ReplayPlugin, comparable_events, comparable_state, difference

    plugin = ReplayPlugin(run_tools=run_tools, verify_requests=verify_requests)
    try:
        recorded = case.session()
        spec = case.spec()
        if spec.agent != app.name:
            raise ReplayConfigError(f"It was recorded with the app {spec.agent!r}, not with {app.name!r}")

        replayed_app = dataclasses.replace(app, plugins=[plugin, *app.plugins])
        recordings = load_recordings(case.recordings_path).recordings
        runner = ConversationRunner(replayed_app, streams=case.mode == "sse", replay=plugin, recordings=recordings)
        replayed = await runner.run(spec.user_messages, state=spec.initial_state)
    except Exception as error:  # agents and tools may raise any exception; the other conversations are still replayed
        return f"{type(error).__name__}: {error}"

    if recorded is None:
        return ""
    return difference(
        {"events": comparable_events(recorded.events), "state": comparable_state(recorded.state)},
        {"events": comparable_events(replayed.events), "state": comparable_state(replayed.state)},
    )
