"""Calls that were made side by side have their actions in one event."""

from __future__ import annotations

from inline_snapshot import snapshot

from greenroom.records.event import EventActions, ToolConfirmation


def test_actions_of_calls_that_ran_side_by_side_are_merged() -> None:
    merged = EventActions(
        state_delta={"a": {"x": {"p": 1}, "list": [1]}, "n": 1},
        artifact_delta={"f": 0, "g": 3},
        transfer_to_agent="first",
        skip_summarization=True,
        requested_tool_confirmations={"c-1": ToolConfirmation(hint="sure?")},
        requested_auth_configs={"c-1": {"key": 1}},
        deleted_artifact_ids=["x"],
        render_ui_widgets=[{"id": 1}],
    )
    merged.merge(EventActions())
    merged.merge(
        EventActions(
            state_delta={"a": {"x": {"q": 2}, "list": [2]}, "n": 2},
            artifact_delta={"f": 1},
            transfer_to_agent="second",
            transfer_reason="better",
            escalate=True,
            render_ui_widgets=[{"id": 2}],
            requested_tool_confirmations={"c-3": ToolConfirmation(hint="really?")},
            deleted_artifact_ids=["y"],
        )
    )
    assert merged == snapshot(
        EventActions(
            state_delta={"a": {"x": {"p": 1, "q": 2}, "list": [2]}, "n": 2},
            artifact_delta={"f": 1, "g": 3},
            requested_auth_configs={"c-1": {"key": 1}},
            requested_tool_confirmations={
                "c-1": ToolConfirmation(hint="sure?"),
                "c-3": ToolConfirmation(hint="really?"),
            },
            skip_summarization=True,
            transfer_to_agent="second",
            transfer_reason="better",
            escalate=True,
            render_ui_widgets=[{"id": 1}, {"id": 2}],
            deleted_artifact_ids=["x", "y"],
        )
    )
