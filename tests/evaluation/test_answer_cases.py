"""Cases of answers: what of the conversation they keep, and the versions of their sets."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from greenroom.errors import InvalidRequest, NotFound
from greenroom.evaluation.files import EvalFiles
from greenroom.evaluation.invocations import case_of_answer, events_of, invocations_of
from greenroom.evaluation.records import EvalCase, EvalSet, Invocation
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.records.session import Session


def event(run: str, author: str, *parts: Part, name: str, **delta: int) -> Event:
    role = "user" if author == "user" else "model"
    return Event(
        id=name,
        author=author,
        invocation_id=run,
        content=Content(role=role, parts=list(parts)),
        actions=EventActions(state_delta=delta),
    )


def session_of(*events: Event, **state: int) -> Session:
    return Session(
        id="s-1", app_name="desk", user_id="ann", state=state, events=CopyOnWriteList(events), last_update_time=0.0
    )


CALL = Part(function_call=FunctionCall(id="1", name="find", args={"city": "Oslo"}))
RESPONSE = Part(function_response=FunctionResponse(id="1", name="find", response={"n": 1}))
TALK = (
    event("r-1", "user", Part(text="Hi"), name="a", count=1),
    event("r-1", "helper", Part(text="Hello"), name="b"),
    event("r-2", "user", Part(text="Oslo?"), name="c"),
    event("r-2", "desk", CALL, name="d", count=2),
    event("r-2", "desk", RESPONSE, name="e"),
    event("r-2", "desk", Part(text="Rain"), name="f"),
    event("r-2", "desk", Part(text="And wind"), name="g"),
)


def test_a_case_has_the_state_and_the_turns_before_the_message() -> None:
    session = session_of(*TALK, count=2, unit=7)
    case = case_of_answer(session, "f", "c1")
    assert case.session_input is not None
    assert case.session_input.state == {"count": 1, "unit": 7}
    assert [turn.final_response is None for turn in case.conversation or []] == [False, True]
    assert case.given_turns == 1
    assert case.rubrics is None
    assert case.source is not None
    assert case.source.answer.text() == "Rain"  # what came after the answer isn't part of it
    assert case.tool_results is not None
    assert [one.response for one in case.tool_results["find"]] == [{"n": 1}]


def test_given_turns_are_the_events_that_they_were() -> None:
    given = list(events_of(invocations_of(TALK), "root"))
    assert [(one.invocation_id, one.author, one.content) for one in given] == [
        (one.invocation_id, one.author, one.content) for one in TALK
    ]


@pytest.mark.parametrize("event_id", ["a", "missing"])
def test_only_answers_become_cases(event_id: str) -> None:
    with pytest.raises(InvalidRequest):
        case_of_answer(session_of(*TALK), event_id, "c1")


def test_a_case_must_leave_something_to_run() -> None:
    turn = Invocation(user_content=UserContent("hi"))
    EvalCase(eval_id="c", conversation=[turn, turn], given_turns=1).check()
    for given in (-1, 2):
        with pytest.raises(InvalidRequest, match="given_turns"):
            EvalCase(eval_id="c", conversation=[turn, turn], given_turns=given).check()


def case_named(name: str, text: str = "hi") -> EvalCase:
    return EvalCase(eval_id=name, conversation=[Invocation(user_content=UserContent(text))])


async def names_of(files: EvalFiles, version: int | None = None) -> list[str]:
    return [case.eval_id for case in (await files.get_set("desk", "s", version)).eval_cases]


async def test_each_change_of_a_set_is_a_version(tmp_path: Path) -> None:
    files = EvalFiles(lambda app_name: tmp_path / app_name)
    created = await files.create_set("desk", EvalSet(eval_set_id="s"))
    assert created.version is None
    assert await files.add_cases("desk", "s", case_named("a"), case_named("b")) == 1
    await files.replace_case("desk", "s", case_named("a", "other"))
    await files.replace_case("desk", "s", case_named("a", "other"))  # no change
    await files.delete_case("desk", "s", "b")
    changes = [(one.version, one.added, one.changed, one.removed) for one in await files.list_versions("desk", "s")]
    assert changes == [(1, ["a", "b"], [], []), (2, [], ["a"], []), (3, [], [], ["b"])]
    assert [await names_of(files, version) for version in (1, 2, 3, None)] == [["a", "b"], ["a", "b"], ["a"], ["a"]]
    with pytest.raises(NotFound, match="no version 4"):
        await files.get_set("desk", "s", 4)
    await files.delete_set("desk", "s")
    assert await files.list_sets("desk") == []
    assert (await files.create_set("desk", EvalSet(eval_set_id="s", eval_cases=[case_named("z")]))).version == 1


async def test_a_set_that_was_edited_by_hand_gets_a_version_when_it_is_run(tmp_path: Path) -> None:
    files = EvalFiles(lambda app_name: tmp_path / app_name)
    await files.create_set("desk", EvalSet(eval_set_id="s", eval_cases=[case_named("a")]))
    path = tmp_path / "desk" / "s.evalset.json"
    path.write_text(path.read_text().replace('"hi"', '"edited"'))
    assert (await files.get_set("desk", "s")).version is None
    assert (await files.get_set_to_run("desk", "s")).version == 2
    assert (await files.get_set("desk", "s")).version == 2
    [case] = (await files.get_set("desk", "s", 1)).eval_cases
    assert (case.conversation or [])[0].user_content.text() == "hi"


async def test_a_line_that_a_kill_cut_off_is_written_again(tmp_path: Path) -> None:
    files = EvalFiles(lambda app_name: tmp_path / app_name)
    await files.create_set("desk", EvalSet(eval_set_id="s", eval_cases=[case_named("a")]))
    [history] = (tmp_path / "desk" / ".adk" / "eval_sets").iterdir()
    whole = history.read_bytes()
    history.write_bytes(whole + whole[:50])
    assert (await files.get_set("desk", "s")).version == 1
    assert await files.add_cases("desk", "s", case_named("b")) == 2
    assert [one.version for one in await files.list_versions("desk", "s")] == [1, 2]


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    def add(number: int) -> None:
        files = EvalFiles(lambda app_name: tmp_path / app_name)
        asyncio.run(files.add_cases("desk", "s", case_named(f"c{number}")))

    asyncio.run(EvalFiles(lambda app_name: tmp_path / app_name).create_set("desk", EvalSet(eval_set_id="s")))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(16)))
    files = EvalFiles(lambda app_name: tmp_path / app_name)
    assert len(asyncio.run(names_of(files))) == 16
    assert [one.version for one in asyncio.run(files.list_versions("desk", "s"))] == list(range(1, 17))
