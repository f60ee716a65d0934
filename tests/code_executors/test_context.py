"""The part of a session's state that belongs to code execution, as executors and tools read and change it."""

from __future__ import annotations

from typing import Any

from greenroom.code_executors.context import CodeExecutorContext
from greenroom.environments.files import File


def test_the_execution_id_and_the_processed_files_are_stored_by_a_delta() -> None:
    state: dict[str, Any] = {}
    context = CodeExecutorContext(state)
    assert (context.get_execution_id(), context.get_processed_file_names()) == (None, [])
    context.set_execution_id("s-1")
    context.add_processed_file_names(["a.csv"])
    context.add_processed_file_names(["b.csv"])
    assert state == {}
    state.update(context.get_state_delta())
    assert state == {
        "_code_execution_context": {"execution_session_id": "s-1", "processed_input_files": ["a.csv", "b.csv"]}
    }
    assert CodeExecutorContext(state).get_execution_id() == "s-1"


def test_input_files_are_kept_as_json() -> None:
    state: dict[str, Any] = {}
    context = CodeExecutorContext(state)
    file = File(name="a.bin", content=b"\xff", mime_type="application/octet-stream")
    context.add_input_files([file])
    context.add_processed_file_names(["a.bin"])
    assert state["_code_executor_input_files"] == [
        {"name": "a.bin", "content": "/w==", "mime_type": "application/octet-stream"}
    ]
    assert context.get_input_files() == [file]
    context.clear_input_files()
    assert (context.get_input_files(), context.get_processed_file_names()) == ([], [])


def test_failures_and_results_are_those_of_one_run() -> None:
    state: dict[str, Any] = {}
    context = CodeExecutorContext(state)
    context.reset_error_count("r-1")
    assert state == {}
    context.increment_error_count("r-1")
    context.increment_error_count("r-1")
    assert (context.get_error_count("r-1"), context.get_error_count("r-2")) == (2, 0)
    context.increment_error_count("r-2")
    assert state["_code_executor_error_counts"] == {"r-2": 1}
    context.reset_error_count("r-2")
    assert state["_code_executor_error_counts"] == {}

    context.update_code_execution_result("r-1", "a", "out", "")
    context.update_code_execution_result("r-1", "b", "", "err")
    results = state["_code_execution_results"]["r-1"]
    assert [(one["code"], one["result_stdout"], one["result_stderr"]) for one in results] == [
        ("a", "out", ""),
        ("b", "", "err"),
    ]
    context.update_code_execution_result("r-2", "c", "", "")
    assert list(state["_code_execution_results"]) == ["r-2"]
