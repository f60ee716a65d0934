"""`greenroom eval collect` and `greenroom eval scenarios`: add cases to evaluation sets."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli import data_folder, sessions
from greenroom.cli.evaluation import read_record
from greenroom.cli.find_agent import find_loader
from greenroom.cli.parameters import AgentPath, SessionStore
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError

if TYPE_CHECKING:
    from greenroom.evaluation.files import EvalFiles
    from greenroom.records.session import Session
    from greenroom.sessions.service import BaseSessionService


def collect(
    agent: AgentPath,
    set_id: Annotated[str, Parameter(name="SET")],
    /,
    *,
    user: str | None = None,
    session: tuple[str, ...] = (),
    session_service: SessionStore = None,
    limit: int = 50,
) -> None:
    """Add stored conversations to an evaluation set.

    The set is created if it doesn't exist. The answers and tool calls of a conversation become the expected ones.
    Conversations that are already in the set are skipped, and so are those of evaluations.

        greenroom eval collect examples:weather cities --user ada --limit 20

        greenroom eval collect examples:weather cities --session 0198c1b2 --session-service sqlite:///chats.db

    Parameters
    ----------
    set_id
        The ID of the set: letters, digits and `_`.
    user
        Only conversations of this user.
    session
        Only this conversation: its session ID, or the beginning of it. May be repeated.
    limit
        The maximum number of conversations. The newest are taken.
    """
    from greenroom.evaluation.files import EvalFiles

    loader, name = find_loader(agent)
    store = sessions.open_store(loader.folder(name).parent, session_service)
    added = asyncio.run(_collect(store, name, EvalFiles(loader.folder), set_id, user, session, limit))
    cases, them = ("case", "it") if added == 1 else ("cases", "them")
    note(f"Added {added} {cases} to {set_id}; run {them} with: greenroom eval {agent} {set_id}")


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
    added = 0
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
                await files.add_case(app_name, set_id, case_of_session(session, eval_id))
                added += 1
    return added


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
        for case in new:
            await files.add_case(name, set_id, case)
        print_line(f"{len(new)} scenarios added to {set_id}, {len(cases) - len(new)} already existed")

    asyncio.run(add())
