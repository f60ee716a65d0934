"""Evaluation sets and results in files: both of ADK's schemas are read, the newer one is written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from greenroom.errors import CallerError, InvalidRequest, NotFound
from greenroom.evaluation.files import EvalFiles, read_eval_set
from greenroom.evaluation.records import EvalCase, EvalCaseResult, EvalSet, EvalSetResult, EvalStatus
from greenroom.records.session import Session

_NEW = {
    "eval_set_id": "weather",
    "name": "weather",
    "eval_cases": [
        {
            "eval_id": "oslo",
            "conversation": [
                {
                    "invocation_id": "i-1",
                    "user_content": {"role": "user", "parts": [{"text": "Oslo?"}]},
                    "final_response": {"role": "model", "parts": [{"text": "Snow."}]},
                    "intermediate_data": {
                        "invocation_events": [
                            {
                                "author": "desk",
                                "content": {
                                    "parts": [{"function_call": {"name": "get", "args": {"city_name": "Oslo"}}}]
                                },
                            }
                        ]
                    },
                }
            ],
            "session_input": {"app_name": "desk", "user_id": "ann", "state": {"unit_of": "C"}},
        }
    ],
    "creation_timestamp": 1750000000.5,
}
_OLD = [
    {
        "name": "oslo",
        "data": [
            {
                "query": "Oslo?",
                "expected_tool_use": [{"tool_name": "get", "tool_input": {"city_name": "Oslo"}}],
                "expected_intermediate_agent_responses": [{"author": "desk", "text": "I look"}],
                "reference": "Snow.",
            }
        ],
        "initial_session": {"app_name": "desk", "user_id": "ann", "state": {"unit_of": "C"}},
    }
]


@pytest.fixture
def files(tmp_path: Path) -> EvalFiles:
    return EvalFiles(lambda app_name: tmp_path / app_name)


@pytest.mark.parametrize("schema", [_NEW, _OLD], ids=["new", "old"])
def test_both_schemas_are_the_same_set(schema: Any) -> None:
    eval_set = read_eval_set(json.dumps(schema).encode(), "weather")
    [case] = eval_set.eval_cases
    assert (eval_set.eval_set_id, case.eval_id) == ("weather", "oslo")
    assert case.session_input is not None
    assert (case.session_input.user_id, case.session_input.state) == ("ann", {"unit_of": "C"})
    [turn] = case.conversation or []
    assert [(call.name, call.args) for call in turn.calls()] == [("get", {"city_name": "Oslo"})]
    assert turn.text() == "Snow."


async def test_a_set_is_written_as_it_was_read(files: EvalFiles, tmp_path: Path) -> None:
    given = read_eval_set(json.dumps(_NEW).encode(), "weather")
    await files.create_set("desk", given)
    written = (tmp_path / "desk" / "weather.evalset.json").read_text()
    assert read_eval_set(written.encode(), "weather") == given
    assert (await files.get_set("desk", "weather")).eval_cases == given.eval_cases
    assert '"city_name": "Oslo"' in written
    assert '"invocation_events"' in written
    assert "userContent" not in written
    assert await files.list_sets("desk") == ["weather"]
    assert await files.list_sets("other") == []


async def test_cases_are_added_replaced_and_deleted(files: EvalFiles) -> None:
    await files.create_set("desk", EvalSet(eval_set_id="s"))
    await files.add_cases("desk", "s", EvalCase(eval_id="a", conversation=[]))
    with pytest.raises(CallerError, match="already"):
        await files.add_cases("desk", "s", EvalCase(eval_id="a", conversation=[]))
    with pytest.raises(InvalidRequest, match="either"):
        await files.add_cases("desk", "s", EvalCase(eval_id="b"))
    await files.replace_case("desk", "s", EvalCase(eval_id="a", conversation=[], final_session_state={"x": 1}))
    assert (await files.get_case("desk", "s", "a")).final_session_state == {"x": 1}
    await files.delete_case("desk", "s", "a")
    with pytest.raises(NotFound):
        await files.get_case("desk", "s", "a")
    await files.delete_set("desk", "s")
    with pytest.raises(NotFound):
        await files.get_set("desk", "s")


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a.b", "x" * 300, "ä"])
async def test_ids_never_leave_the_folder(files: EvalFiles, name: str) -> None:
    with pytest.raises(CallerError):
        await files.create_set("desk", EvalSet(eval_set_id=name))
    for get in (files.get_set, files.delete_set):
        with pytest.raises(NotFound):
            await get("desk", name)


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "x" * 300])
async def test_names_of_results_never_leave_the_folder(files: EvalFiles, name: str) -> None:
    with pytest.raises(NotFound):
        await files.get_result("desk", name)


async def test_a_result_that_adk_1_wrote_as_a_string_is_read(files: EvalFiles) -> None:
    result = EvalSetResult(eval_set_result_id="r", eval_set_result_name="r", eval_set_id="s", creation_timestamp=2.0)
    await files.save_result("desk", result)
    path = files.result_path("desk", "r")
    path.write_text(json.dumps(path.read_text()))
    assert await files.get_result("desk", "r") == result
    assert await files.list_results("desk") == ["r"]


def _result(number: int, text: str = "short") -> EvalSetResult:
    session = Session(id="s", app_name="desk", user_id="ann", state={"text": text})
    case = EvalCaseResult(
        eval_set_id="set",
        eval_id="oslo",
        final_eval_status=EvalStatus.PASSED,
        user_id="ann",
        session_id="s",
        session_details=session,
    )
    return EvalSetResult(
        eval_set_result_id=f"r-{number}",
        eval_set_result_name=f"r-{number}",
        eval_set_id="set",
        eval_case_results=[case],
        creation_timestamp=2.0,
    )


async def test_the_oldest_results_are_deleted(files: EvalFiles) -> None:
    for number in range(5):
        assert await files.save_result("desk", _result(number), max_results=3)
        os.utime(files.result_path("desk", f"r-{number}"), (number, number))
    assert await files.list_results("desk") == ["r-2", "r-3", "r-4"]

    await files.save_result("desk", _result(9))
    assert len(await files.list_results("desk")) == 4, "without a limit, nothing is deleted"


async def test_a_large_result_is_stored_without_its_sessions(files: EvalFiles) -> None:
    assert await files.save_result("desk", _result(1, "x" * 100_000), max_bytes=10_000)
    [case] = (await files.get_result("desk", "r-1")).eval_case_results
    assert (case.eval_id, case.session_details) == ("oslo", None)

    assert await files.save_result("desk", _result(2), max_bytes=10_000)
    [small] = (await files.get_result("desk", "r-2")).eval_case_results
    assert small.session_details is not None


async def test_a_result_that_is_too_large_without_sessions_is_not_stored(files: EvalFiles) -> None:
    assert not await files.save_result("desk", _result(1), max_bytes=100)
    assert await files.list_results("desk") == []


@pytest.mark.parametrize("data", [b"{", b"[1]", b'[{"name": "x"}]', b'"x"', b'{"eval_set_id": 1}', b"\xff"])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_eval_set(data, "x")
