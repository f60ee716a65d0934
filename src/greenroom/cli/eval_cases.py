"""`greenroom eval collect` and `greenroom eval scenarios`: add cases to evaluation sets."""

from __future__ import annotations

import asyncio
import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder, database, sessions
from greenroom.cli.evaluation import read_record
from greenroom.cli.find_agent import find_loader
from greenroom.cli.parameters import AgentPath, SessionStore
from greenroom.cli.serving import session_service_of
from greenroom.cli.terminal import note, print_line, print_table
from greenroom.errors import CallerError
from greenroom.records.feedback import FeedbackFilter

if TYPE_CHECKING:
    from greenroom.evaluation.files import EvalFiles
    from greenroom.evaluation.records import EvalCase
    from greenroom.records.feedback import Feedback
    from greenroom.records.session import Session
    from greenroom.sessions.service import BaseSessionService


def collect(
    agent: AgentPath,
    set_id: Annotated[str, Parameter(name="SET")],
    /,
    *,
    user: str | None = None,
    session: tuple[str, ...] = (),
    feedback: str | None = None,
    label: str | None = None,
    min_score: float | None = None,
    max_score: float | None = None,
    days: float | None = None,
    session_service: SessionStore = None,
    limit: int = 50,
) -> None:
    """Add stored conversations to an evaluation set, or answers that got bad feedback.

    The set is created if it doesn't exist. The answers and tool calls of a conversation become the expected ones.
    Conversations that are already in the set are skipped, and so are those of evaluations.

        greenroom eval collect examples:weather cities --user ada --limit 20

        greenroom eval collect examples:weather cities --session 0198c1b2 --session-service sqlite:///chats.db

    With `--feedback`, each answer that got such feedback becomes a case: the conversation up to the message, the
    recorded results of tools, and the comments as rubrics. What is expected is a better answer.

        greenroom eval collect examples:weather complaints --feedback helpful --days 7

    Parameters
    ----------
    set_id
        The ID of the set: letters, digits and `_`.
    user
        Only conversations of this user.
    session
        Only this conversation: its session ID, or the beginning of it. May be repeated.
    feedback
        The name of the feedback. The thumbs of the dev UI are `helpful`.
    label
        Only feedback with this label.
    min_score
        The lowest score of the feedback.
    max_score
        The highest score of the feedback; false counts as 0. Default: 0, unless `--label` or `--min-score` is given.
    days
        Only feedback of the last days.
    limit
        The maximum number of conversations, or of feedback. The newest are taken.
    """
    from greenroom.evaluation.files import EvalFiles

    of_feedback = (label, min_score, max_score, days)
    if feedback is None and any(one is not None for one in of_feedback):
        raise CallerError("--label, --min-score, --max-score and --days need --feedback")
    if feedback is not None and session:
        raise CallerError("Give either --session or --feedback")

    loader, name = find_loader(agent)
    files = EvalFiles(loader.folder)
    folder = loader.folder(name).parent
    if feedback is None:
        store = sessions.open_store(folder, session_service)
        added = asyncio.run(_collect(store, name, files, set_id, user, session, limit))
    else:
        if label is None and min_score is None and max_score is None:
            max_score = 0.0
        where = FeedbackFilter(
            app_name=name,
            user_id=user,
            name=feedback,
            label=label,
            min_score=min_score,
            max_score=max_score,
            created_from=None if days is None else time.time() - days * 86_400,
        )
        added = asyncio.run(_collect_answers(folder, session_service, files, set_id, where, limit))

    cases, them = ("case", "it") if added == 1 else ("cases", "them")
    note(f"Added {added} {cases} to {set_id}; run {them} with: greenroom eval {agent} {set_id}")


async def _collect_answers(
    agents_folder: Path, uri: str | None, files: EvalFiles, set_id: str, where: FeedbackFilter, limit: int
) -> int:
    """Returns how many cases were added. Raises CallerError for a database that this release would upgrade."""
    from greenroom.evaluation.answer_cases import AnswerSources, add_answers
    from greenroom.records.session import SessionKey
    from greenroom.runs.engine import run_store_beside

    store = sessions.open_store(agents_folder, uri)
    if store.is_remote:
        store.server_database = str(data_folder.database_path(agents_folder))
    else:
        await database.check_schema(session_service_of(agents_folder, uri))
    runs = run_store_beside(store)

    async def session_of(key: SessionKey) -> Session | None:
        return await store.get_session(**key._asdict())

    async def app_version(run_id: str) -> str | None:
        run = await runs.get(run_id)
        return None if run is None else run.app_version

    async def feedback_on(key: SessionKey, event_id: str) -> list[Feedback]:
        of_event = FeedbackFilter(**key._asdict(), event_id=event_id)
        return (await runs.feedback.list(of_event)).feedback

    sources = AnswerSources(get_session=session_of, get_app_version=app_version, list_feedback=feedback_on)
    async with data_folder.closing(runs, store):
        found = (await runs.feedback.list(where, limit=limit)).feedback
        answers = [(one.session_key, one.event_id) for one in found]
        response = await add_answers(files, set_id, answers, sources, app_name=where.app_name)

    for skipped in response.skipped:
        note(f"Skipped {skipped.session_id}: {skipped.reason}")
    return len(response.added)


def versions(
    agent: AgentPath,
    set_id: Annotated[str, Parameter(name="SET")],
    /,
) -> None:
    """List the versions of an evaluation set.

    Each change of a set is a version. `SET@VERSION` runs one: `greenroom eval examples:weather cities@3`.

        greenroom eval versions examples:weather cities
    """
    from greenroom.evaluation.files import EvalFiles

    loader, name = find_loader(agent)
    rows: list[tuple[str, ...]] = []
    for version in asyncio.run(EvalFiles(loader.folder).list_versions(name, set_id)):
        created = datetime.fromtimestamp(version.created_at).strftime("%Y-%m-%d %H:%M:%S")
        changes = [
            f"{verb} {', '.join(ids)}"
            for verb, ids in (("added", version.added), ("changed", version.changed), ("removed", version.removed))
            if ids
        ]
        rows.append((str(version.version), created, str(version.size), "; ".join(changes)))
    print_table(("version", "time", "cases", "changes"), rows)


async def _collect(
    store: BaseSessionService,
    app_name: str,
    files: EvalFiles,
    set_id: str,
    user: str | None,
    wanted: tuple[str, ...],
    limit: int,
) -> int:
    """Returns how many cases were added."""
    from greenroom.evaluation.invocations import case_of_session, invocations_of
    from greenroom.evaluation.run import SESSION_PREFIX

    eval_set = await files.get_or_create_set(app_name, set_id)
    eval_ids = {case.eval_id for case in eval_set.eval_cases}
    cases: list[EvalCase] = []
    async with data_folder.closing(store):
        chosen: list[Session] = []
        if wanted:
            for session_id in wanted:
                chosen.append(await sessions.find_session(store, [app_name], user, session_id))
        else:
            chosen += [session async for session in sessions.newest(store, app_name, user, limit)]

        for listed in chosen:
            eval_id = re.sub(r"\W", "_", listed.id)
            if eval_id in eval_ids or listed.id.startswith(SESSION_PREFIX):
                continue
            session = await store.get_session(**listed.key._asdict())
            if session is not None and invocations_of(session.events):
                cases.append(case_of_session(session, eval_id))
    await files.add_cases(app_name, set_id, *cases)
    return len(cases)


def scenarios(
    agent: AgentPath,
    set_id: Annotated[str, Parameter(name="SET")],
    /,
    *,
    scenarios_file: Path | None = None,
    session_input_file: Path | None = None,
    generate: int | None = None,
    model: str | None = None,
    about: str | None = None,
    environment: Path | None = None,
) -> None:
    """Add scenarios to an evaluation set: conversations in which a model plays the user.

    The scenarios come from a file, or a model generates them.

        greenroom eval scenarios examples/weather cities --scenarios-file scenarios.json

        greenroom eval scenarios examples/weather cities --generate 10 --about "People who name no city"

    Parameters
    ----------
    set_id
        The ID of the set. It is created if it doesn't exist.
    scenarios_file
        A JSON file: `{"scenarios": [{"starting_prompt": …, "conversation_plan": …}]}`.
    session_input_file
        A JSON file with `app_name`, `user_id` and `state` of the sessions.
    generate
        How many scenarios to generate.
    model
        The model that generates them.
    about
        What the generated scenarios should be about.
    environment
        A text file that describes the data of the agent's tools.
    """
    from greenroom.evaluation.files import EvalFiles
    from greenroom.evaluation.metrics.judge import DEFAULT_MODEL
    from greenroom.evaluation.records import ConversationScenario, SessionInput
    from greenroom.evaluation.run import app_details
    from greenroom.evaluation.simulation import (
        ConversationGenerationConfig,
        ConversationScenarios,
        generate_scenarios,
        scenario_cases,
    )

    if (scenarios_file is None) == (generate is None):
        raise CallerError("Give either --scenarios-file or --generate")
    loader, name = find_loader(agent)
    files = EvalFiles(loader.folder)
    session_input = read_record(session_input_file, SessionInput) if session_input_file is not None else None
    data = environment.read_text(encoding="utf-8") if environment is not None else None

    async def found() -> list[ConversationScenario]:
        if scenarios_file is not None:
            return read_record(scenarios_file, ConversationScenarios).scenarios
        config = ConversationGenerationConfig(
            count=generate or 0,
            model_name=model or DEFAULT_MODEL,
            generation_instruction=about,
            environment_context=data,
        )
        return await generate_scenarios(config, await app_details(loader.load(name)))

    async def add() -> None:
        cases = scenario_cases(await found(), session_input)
        eval_set = await files.get_or_create_set(name, set_id)
        new = [case for case in cases if eval_set.case(case.eval_id) is None]
        await files.add_cases(name, set_id, *new)
        print_line(f"{len(new)} scenarios added to {set_id}, {len(cases) - len(new)} already existed")

    asyncio.run(add())
