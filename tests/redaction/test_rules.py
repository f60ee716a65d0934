"""The rules by which an app redacts what it stores."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from greenroom.errors import AgentConfigError
from greenroom.records.answer_metadata import GroundingMetadata
from greenroom.records.content import (
    Blob,
    CodeExecutionResult,
    Content,
    ExecutableCode,
    FunctionCall,
    FunctionResponse,
    FunctionResponsePart,
    Part,
    ToolCall,
    ToolResponse,
    Transcription,
)
from greenroom.records.event import Event, EventActions, EventCompaction, ToolConfirmation
from greenroom.redaction.findings import Finding
from greenroom.redaction.patterns import TextPattern
from greenroom.redaction.rules import Redaction

MAIL = "ada@example.com"
CLEAN = "[redacted: email]"

UNTOUCHED = {
    # of an event: ids, names, times, numbers and what providers name
    "partial", "turn_complete", "interrupted", "error_code", "finish_reason", "usage_metadata", "model_version",
    "avg_logprobs", "live_session_resumption_update", "live_session_id", "go_away", "voice_activity",
    "turn_complete_reason", "interaction_id", "interaction_status", "environment_id", "cache_metadata", "id",
    "invocation_id", "author", "timestamp", "branch", "long_running_tool_ids", "node_info", "isolation_scope",
    # of actions
    "artifact_delta", "requested_auth_configs", "skip_summarization", "transfer_to_agent", "escalate", "end_of_agent",
    "rewind_before_invocation_id", "route", "deleted_artifact_ids", "end_invocation",
    # of parts
    "file_data", "thought", "thought_signature", "video_metadata", "media_resolution", "media_processing",
}  # fmt: skip
"""Fields that the rules don't read. A new field of an event belongs here, or in `_event`."""


def _event() -> Event:
    """An event with an address in each field that the rules read."""
    blob = Blob(data=MAIL.encode(), mime_type="text/csv")
    parts = [
        Part(text=MAIL),
        Part(inline_data=blob),
        Part(function_call=FunctionCall(id="c-1", name="send", args={"to": [MAIL]})),
        Part(
            function_response=FunctionResponse(
                id="c-1", name="send", response={"to": MAIL}, parts=[FunctionResponsePart(inline_data=blob)]
            )
        ),
        Part(executable_code=ExecutableCode(code=MAIL)),
        Part(code_execution_result=CodeExecutionResult(output=MAIL)),
        Part(tool_call=ToolCall(args={"to": MAIL})),
        Part(tool_response=ToolResponse(response={"to": MAIL})),
        Part(audio_transcription=Transcription(text=MAIL, words=[{"word": MAIL}])),
        Part(text="a", part_metadata={"by": MAIL}, speech_metadata={"by": MAIL}),
    ]
    summary = EventCompaction(start_timestamp=1, end_timestamp=2, compacted_content=Content(parts=[Part(text=MAIL)]))
    return Event(
        author="desk",
        content=Content(role="model", parts=parts),
        error_message=MAIL,
        grounding_metadata=GroundingMetadata(web_search_queries=[MAIL]),
        custom_metadata={"by": MAIL},
        input_transcription=Transcription(text=MAIL),
        output_transcription=Transcription(text=MAIL),
        output={"to": MAIL},
        actions=EventActions(
            state_delta={"to": MAIL, "user:to": MAIL, f"of {MAIL}": 1},
            requested_tool_confirmations={"c-1": ToolConfirmation(hint=MAIL, payload={"to": MAIL})},
            transfer_reason=MAIL,
            agent_state={"history": [MAIL]},
            compaction=summary,
            render_ui_widgets=[{"title": MAIL}],
            set_model_response={"to": MAIL},
        ),
    )


async def test_every_text_of_an_event_is_redacted() -> None:
    event = _event()
    await Redaction(patterns=["email"]).redact_event(event)
    encoded = repr(event)
    assert MAIL not in encoded
    assert encoded.count(CLEAN) > 20


def test_the_fields_of_events_are_known() -> None:
    event = _event()
    parts = list((event.content.parts if event.content else None) or ())
    for record, values in ((Event, [event]), (EventActions, [event.actions]), (Part, parts)):
        fields = set(record.__struct_fields__) - {"actions", "content"} - UNTOUCHED
        unset = {name for name in fields if all(not getattr(value, name) for value in values)}
        assert unset <= {"citation_metadata", "logprobs_result"}, record


async def test_numbers_ids_and_other_texts_stay() -> None:
    event = Event(author="desk", content=Content(parts=[Part(text="Order 12345 of 2026-11-03, at 10 am")]))
    event.actions.state_delta = {"seconds": 1764163531.25, "id": "550e8400-e29b-41d4-a716-446655440000", "n": 7}
    before = msgspec.json.encode(event)
    await Redaction(fields=["ssn"], patterns=["email", "phone", "card_number", "iban", "token"]).redact_event(event)
    assert msgspec.json.encode(event) == before


async def test_fields_are_replaced_at_any_depth() -> None:
    rules = Redaction(fields=["ssn", "customer.address"])
    value = {
        "ssn": 123,
        "customer": {"address": {"city": "Ulm"}, "name": "Ada", "ssn": None},
        "address": "stays",
        "rows": [{"customer": [{"address": "x"}]}],
    }
    assert await rules.redact_json(value) == {
        "ssn": "[redacted: ssn]",
        "customer": {"address": "[redacted: customer.address]", "name": "Ada", "ssn": None},
        "address": "stays",
        "rows": [{"customer": [{"address": "[redacted: customer.address]"}]}],
    }
    state = {"ssn": "1", "user:ssn": "2", "app:ssn": "3", "temp:ssn": "4"}
    redacted = "[redacted: ssn]"
    expected = {"ssn": redacted, "user:ssn": redacted, "app:ssn": redacted, "temp:ssn": "4"}
    assert await rules.redact_state(state) == expected


async def test_requests_to_people_keep_the_name_of_their_call() -> None:
    rules = Redaction(fields=["name", "hint", "id"])
    args = {"originalFunctionCall": {"id": "c-1", "name": "pay", "args": {"name": "Ada"}}, "hint": "Pay?"}
    content = Content(parts=[Part(function_call=FunctionCall(id="c-2", name="adk_request_confirmation", args=args))])
    [part] = (await rules.redact_content(content)).parts or [Part()]
    assert part.function_call is not None
    redacted = {"id": "c-1", "name": "pay", "args": {"name": "[redacted: name]"}}
    assert part.function_call.args == {"originalFunctionCall": redacted, "hint": "Pay?"}


async def test_a_text_that_is_split_over_parts_is_found() -> None:
    content = Content(parts=[Part(text="It is 4111 1111 "), Part(text="1111 1111, thanks")])
    redacted = await Redaction(patterns=["card_number"]).redact_content(content)
    assert redacted.text() == "It is [redacted: card_number], thanks"


async def test_a_finder_finds_what_no_pattern_does() -> None:
    asked: list[str] = []

    def names(text: str) -> list[Finding]:
        asked.append(text)
        at = text.find("Ada")
        return [] if at == -1 else [Finding(at, at + 3, "name")]

    rules = Redaction(patterns=[TextPattern("order", r"O-\d+")], finders=[names])
    assert await rules.redact_text("Ada has O-17") == "[redacted: name] has [redacted: order]"
    assert rules.traced(Content(parts=[Part(text="Ada has O-17")])).text() == "[redacted: name] has [redacted: order]"
    assert asked == ["Ada has O-17"]


@pytest.mark.parametrize(
    ("text", "is_phone"),
    [
        ("+49 30 901820", True), ("+1 (555) 123-4567.", True), ("555-123-4567", True), ("(555) 123-4567", True),
        ("+4915112345678", True), ("2026-11-03", False), ("1.234.567.8901", False), ("call 0301234567", False),
        ("x+4915112345678", False), ("+12345", False), ("446655440000", False),
    ],
)  # fmt: skip
def test_phone_numbers(text: str, is_phone: bool) -> None:
    assert bool(list(TextPattern("phone").find(text))) == is_phone


@pytest.mark.parametrize("options", [{}, {"fields": ["a..b"]}, {"patterns": ["passport"]}, {"fields": [""]}])
def test_wrong_rules_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError):
        Redaction(**options)
