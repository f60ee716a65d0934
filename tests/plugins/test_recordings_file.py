"""The file format of recordings."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from greenroom.errors import ReplayConfigError
from greenroom.plugins.recordings_file import dump_recordings, load_recordings
from greenroom.records.answer_metadata import FinishReason
from greenroom.records.content import Blob, Content, FunctionCall, FunctionResponse, Part
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.recording import LlmRecording, Recording, Recordings, ToolRecording
from greenroom.records.tool_declaration import FunctionDeclaration

SPEC = """\
recordings:
- user_message_index: 0            # 0-based turn
  agent_name: bistro_host
  llm_recording:
    llm_request:
      {model: gemini-2.5-flash, contents: [{role: user, parts: [{text: "a table?"}]}], config: {temperature: 0.2}}
    llm_responses:                 # one, or every chunk in SSE mode
    - {content: {role: model, parts: [{function_call: {id: adk-1, name: free_tables, args: {seats: 2}}}]}}
- user_message_index: 0
  agent_name: bistro_host
  tool_recording:
    tool_call:     {id: adk-1, name: free_tables, args: {seats: 2}}
    tool_response: {id: adk-1, name: free_tables, response: {result: [4, 7]}}
"""

CALL = FunctionCall(id="adk-1", name="free_tables", args={"seats": 2})

RECORDINGS = Recordings(
    recordings=[
        Recording(
            user_message_index=0,
            agent_name="bistro_host",
            llm_recording=LlmRecording(
                llm_request=LlmRequest(
                    model="gemini-2.5-flash",
                    contents=[Content(role="user", parts=[Part(text="a table?")])],
                    config=GenerateContentConfig(temperature=0.2),
                ),
                llm_responses=[LlmResponse(content=Content(role="model", parts=[Part(function_call=CALL)]))],
            ),
        ),
        Recording(
            user_message_index=0,
            agent_name="bistro_host",
            tool_recording=ToolRecording(
                tool_call=CALL,
                tool_response=FunctionResponse(id="adk-1", name="free_tables", response={"result": [4, 7]}),
            ),
        ),
    ]
)


def test_the_format_is_read_from_a_text_a_stream_and_a_file(tmp_path: Path) -> None:
    file = tmp_path / "generated-recordings.yaml"
    file.write_text(SPEC)
    for source in (SPEC, io.StringIO(SPEC), io.BytesIO(SPEC.encode()), file):
        assert load_recordings(source) == RECORDINGS


def test_the_format_is_written_in_snake_case_without_nulls_and_defaults() -> None:
    assert dump_recordings(RECORDINGS) == (
        "recordings:\n"
        "- user_message_index: 0\n"
        "  agent_name: bistro_host\n"
        "  llm_recording:\n"
        "    llm_request:\n"
        "      model: gemini-2.5-flash\n"
        "      contents:\n"
        "      - role: user\n"
        "        parts:\n"
        "        - text: a table?\n"
        "      config:\n"
        "        temperature: 0.2\n"
        "    llm_responses:\n"
        "    - content:\n"
        "        role: model\n"
        "        parts:\n"
        "        - function_call:\n"
        "            id: adk-1\n"
        "            name: free_tables\n"
        "            args:\n"
        "              seats: 2\n"
        "- user_message_index: 0\n"
        "  agent_name: bistro_host\n"
        "  tool_recording:\n"
        "    tool_call:\n"
        "      id: adk-1\n"
        "      name: free_tables\n"
        "      args:\n"
        "        seats: 2\n"
        "    tool_response:\n"
        "      id: adk-1\n"
        "      name: free_tables\n"
        "      response:\n"
        "        result:\n"
        "        - 4\n"
        "        - 7\n"
    )


def reply(*parts: Part, request: LlmRequest | None = None) -> Recordings:
    responses = [LlmResponse(content=Content(role="model", parts=list(parts)), finish_reason=FinishReason.STOP)]
    recorded = LlmRecording(llm_request=request, llm_responses=responses)
    return Recordings(recordings=[Recording(user_message_index=3, agent_name="a", llm_recording=recorded)])


TEXTS = [
    "2024-01-31", "yes", "12", "null", "a: b", "- x", "two\nlines\n", "a \nb", "\n\n", " x\n y ", "a\r\nb", "\t",
    "é\u2028\x85\U0001f600", "\x1b[1m", "", " ",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back_as_it_was(text: str) -> None:
    given = reply(
        Part(text=text), Part(function_call=FunctionCall(name="f", args={"camelCase": text, "snake_case": 1}))
    )
    assert load_recordings(dump_recordings(given)) == given


def test_a_date_that_was_written_without_quotes_stays_a_text() -> None:
    text = SPEC.replace('"a table?"', "2024-01-31")
    recorded = load_recordings(text).recordings[0].llm_recording
    assert recorded is not None
    assert recorded.llm_request is not None
    assert recorded.llm_request.contents[0].text() == "2024-01-31"


def test_bytes_are_url_safe_base64_and_both_alphabets_are_read() -> None:
    given = reply(Part(inline_data=Blob(data=b"\xfb\xef\xff", mime_type="x/y")))
    text = dump_recordings(given)
    assert "data: --__\n" in text
    assert load_recordings(text) == load_recordings(text.replace("--__", "++//")) == given


def test_a_system_instruction_is_a_text_or_a_content() -> None:
    for instruction in ("Be brief.", Content(role="user", parts=[Part(text="Be brief.")])):
        given = reply(Part(text="ok"), request=LlmRequest(config=GenerateContentConfig(system_instruction=instruction)))
        assert load_recordings(dump_recordings(given)) == given


def test_unknown_keys_are_ignored_and_camel_case_is_taken() -> None:
    text = SPEC.replace("agent_name", "agentName").replace("{temperature: 0.2}", "{temperature: 0.2, mood: good}")
    assert load_recordings(text + "version: 7\n") == RECORDINGS


def test_what_may_hold_tokens_and_what_is_of_this_process_is_not_written() -> None:
    request = LlmRequest(config=GenerateContentConfig(http_options={"headers": {"Authorization": "secret"}}))
    request.add_declaration(FunctionDeclaration(name="f"), object())
    text = dump_recordings(reply(Part(text="ok"), request=request))
    assert "secret" not in text
    assert "tools_dict" not in text
    assert "name: f" in text


def test_a_recording_has_a_model_or_a_tool_by_convention_only() -> None:
    text = "recordings: [{user_message_index: 0, agent_name: a}]"
    assert load_recordings(text).recordings == [Recording(user_message_index=0, agent_name="a")]
    assert not load_recordings(text).recordings[0].is_complete


def test_nothing_at_all_is_no_recordings() -> None:
    assert load_recordings("") == Recordings()
    assert load_recordings(dump_recordings(Recordings())) == Recordings()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("recordings: [", "not valid YAML"),
        ("recordings: [{agent_name: a}]", "userMessageIndex"),
        ("recordings: 7", "recordings"),
        ("recordings: [!!python/object/apply:os.system [ls]]", "not valid YAML"),
        ("[]", "object"),
    ],
)
def test_what_is_no_recording_is_refused(text: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_text(text)
    with pytest.raises(ReplayConfigError, match=why) as caught:
        load_recordings(file)
    assert str(file) in caught.value.detail


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReplayConfigError, match=r"none\.yaml can't be read"):
        load_recordings(tmp_path / "none.yaml")
