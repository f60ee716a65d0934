"""The loop of an agent's turn: when it continues, when it stops, and the events that a client sees."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.errors import AgentConfigError, LlmCallsLimitExceeded, ModelError
from greenroom.models.model import BaseLlm
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, Part
from greenroom.records.event import Event
from greenroom.records.generation import GenerateContentConfig
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.run import RunConfig
from greenroom.testing.scripted_model import Fails, ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool
from tests.agents.talk import STREAMED, Talk, call, lines_of, shown


def add(a: int, b: int) -> int:
    return a + b


class Chunks(BaseLlm):
    """Yields what it was given, one list per request, whatever that is."""

    def __init__(self, *replies: list[LlmResponse]) -> None:
        super().__init__(model="chunks")
        self._replies = list(replies)
        self.closed = 0

    async def generate_content_async(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:
        try:
            for response in self._replies.pop(0):
                yield response
        finally:
            self.closed += 1


def model_says(text: str, *, partial: bool | None = None, thought: bool | None = None) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=[Part(text=text, thought=thought)]), partial=partial)


async def test_the_model_is_called_until_it_has_said_its_last_word() -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=3), "six"])
    talk = Talk(LlmAgent(name="adder", model=model, tools=[add]))
    events = await talk.say("what is 1 + 2 + 3?")
    assert lines_of(events) == [
        "adder: add(a=1, b=2)",
        "adder: add -> {'result': 3}",
        "adder: add(a=3, b=3)",
        "adder: add -> {'result': 6}",
        "adder: six",
    ]
    assert [event.is_final_response() for event in events] == [False, False, False, False, True]
    assert shown(model.requests[-1]) == [
        "user: what is 1 + 2 + 3?",
        "model: add(a=1, b=2)",
        "user: add -> {'result': 3}",
        "model: add(a=3, b=3)",
        "user: add -> {'result': 6}",
    ]


async def test_the_log_is_the_users_message_and_the_complete_events_that_were_seen() -> None:
    model = ScriptedModel([call("add", a=1, b=2), "three it is"], chunks=4)
    talk = Talk(LlmAgent(name="adder", model=model, tools=[add]))
    seen = await talk.say("1 + 2?", run_config=STREAMED)
    log = await talk.log()
    assert [event.id for event in log[1:]] == [event.id for event in seen if not event.partial]
    assert lines_of(log[:1]) == ["user: 1 + 2?"]
    assert {event.invocation_id for event in [*log, *seen]} == {seen[0].invocation_id}


async def test_each_event_is_stored_before_it_is_seen() -> None:
    talk = Talk(LlmAgent(name="adder", model=ScriptedModel([call("add", a=1, b=2), "three"]), tools=[add]))
    async for event in talk.events("1 + 2?"):
        assert (await talk.log())[-1].id == event.id


async def test_chunks_have_the_id_of_the_whole_that_replaces_them() -> None:
    talk = Talk(LlmAgent(name="poet", model=ScriptedModel(["roses are red"])))
    events = await talk.say("a poem", run_config=STREAMED)
    assert lines_of(events) == ["poet…: roses ", "poet…: are ", "poet…: red", "poet: roses are red"]
    assert len({event.id for event in events}) == 1
    assert lines_of(await talk.log()) == ["user: a poem", "poet: roses are red"]


async def test_without_streaming_there_are_no_chunks() -> None:
    talk = Talk(LlmAgent(name="poet", model=ScriptedModel(["roses are red"])))
    assert lines_of(await talk.say("a poem")) == ["poet: roses are red"]


async def test_calls_run_once_the_whole_reply_is_there() -> None:
    ran: list[int] = []

    def note(number: int) -> int:
        ran.append(number)
        return number

    def chunk(partial: bool | None) -> LlmResponse:
        part = Part(function_call=call("note", "c-1", number=7))
        return LlmResponse(content=Content(role="model", parts=[part]), partial=partial)

    model = Chunks([chunk(True), chunk(None)], [model_says("noted")])
    talk = Talk(LlmAgent(name="clerk", model=model, tools=[note]))
    assert lines_of(await talk.say("note 7", run_config=STREAMED)) == [
        "clerk…: note(number=7)",
        "clerk: note(number=7)",
        "clerk: note -> {'result': 7}",
        "clerk: noted",
    ]
    assert ran == [7]


async def test_two_whole_replies_to_one_request_are_two_messages() -> None:
    talk = Talk(LlmAgent(name="poet", model=Chunks([model_says("first"), model_says("second")])))
    events = await talk.say("two poems")
    assert lines_of(events) == ["poet: first", "poet: second"]
    assert len({event.id for event in events}) == 2
    assert [event.id for event in (await talk.log())[1:]] == [event.id for event in events]


async def test_a_model_that_never_completes_its_reply_ends_the_turn() -> None:
    talk = Talk(LlmAgent(name="poet", model=Chunks([model_says("ros", partial=True)])))
    assert lines_of(await talk.say("a poem", run_config=STREAMED)) == ["poet…: ros"]


async def test_a_model_that_yields_nothing_ends_the_turn() -> None:
    talk = Talk(LlmAgent(name="poet", model=Chunks([])))
    assert await talk.say("a poem") == []


def ends(*parts: Part, reason: str | None = "STOP", **fields: Any) -> LlmResponse:
    return LlmResponse(content=Content(role="model", parts=list(parts)), finish_reason=reason, **fields)


@pytest.mark.parametrize("parts", [[], [Part(text="")], [Part(text=" \n")], [Part(text="Hm.", thought=True)]])
async def test_a_stop_without_an_answer_is_an_error_of_the_model(parts: list[Part]) -> None:
    (event,) = await Talk(LlmAgent(name="poet", model=Chunks([ends(*parts)]))).say("a poem")
    assert event.error_code == "MODEL_RETURNED_NO_CONTENT"
    assert event.content == Content(role="model", parts=parts)


async def test_a_stop_after_a_streamed_answer_is_no_error() -> None:
    talk = Talk(LlmAgent(name="poet", model=Chunks([model_says("a rose"), ends()])))
    assert [event.error_code for event in await talk.say("a poem", run_config=STREAMED)] == [None, None]


@pytest.mark.parametrize("parts", [[], [Part(text="")]])
async def test_a_reply_without_an_answer_and_without_a_reason_is_no_error(parts: list[Part]) -> None:
    (event,) = await Talk(LlmAgent(name="poet", model=Chunks([ends(*parts, reason=None)]))).say("a poem")
    assert (event.error_code, event.error_message) == (None, None)


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "SAFETY"])
async def test_a_reply_that_the_model_cut_short_is_an_answer_if_it_has_text(reason: str) -> None:
    talk = Talk(
        LlmAgent(name="poet", model=Chunks([ends(Part(text="and then"), reason=reason)], [ends(reason=reason)]))
    )
    (event,) = await talk.say("a poem")
    assert (event.finish_reason, event.error_code) == (reason, None)
    (event,) = await talk.say("a poem")
    assert (event.error_code, event.error_message) == (reason, f"The model stopped with {reason}")


async def test_a_reply_that_says_it_is_not_partial_keeps_that() -> None:
    talk = Talk(LlmAgent(name="poet", model=Chunks([ends(Part(text="a rose"), partial=False)])))
    (event,) = await talk.say("a poem")
    assert event.partial is False
    assert (await talk.log())[1].partial is False


REPORTED: dict[str, Any] = {
    "usage_metadata": GenerateContentResponseUsageMetadata(
        prompt_token_count=3, candidates_token_count=4, total_token_count=7
    ),
    "finish_reason": "STOP",
    "model_version": "v7",
    "grounding_metadata": {"sources": ["a"]},
    "citation_metadata": {"citations": [{"uri": "u"}]},
    "avg_logprobs": -0.5,
    "logprobs_result": {"chosen": []},
    "custom_metadata": {"cost": 1},
    "cache_metadata": {"fingerprint": "f"},
    "interaction_id": "i-1",
    "turn_complete": True,
    "interrupted": True,
    "error_code": "OTHER",
    "error_message": "half of it",
}


async def test_what_the_model_reports_beside_its_text_is_on_the_event() -> None:
    reply = LlmResponse(content=Content(role="model", parts=[Part(text="hi")]), **REPORTED)
    talk = Talk(LlmAgent(name="poet", model=Chunks([reply])))
    (event,) = await talk.say("hello")
    assert event == Event(
        id=event.id,
        invocation_id=event.invocation_id,
        timestamp=event.timestamp,
        author="poet",
        content=reply.content,
        **REPORTED,
    )


@pytest.mark.parametrize("name", ["error_code", "interrupted", "turn_complete", "usage_metadata", "grounding_metadata"])
async def test_a_reply_without_content_is_an_event_if_it_has_something_else(name: str) -> None:
    talk = Talk(LlmAgent(name="poet", model=Chunks([LlmResponse(**{name: REPORTED[name]})])))
    (event,) = await talk.say("hello")
    assert (event.content, getattr(event, name)) == (None, REPORTED[name])


async def test_a_reply_that_says_nothing_at_all_is_passed_over() -> None:
    nothing = LlmResponse(model_version="v7", partial=True)
    talk = Talk(LlmAgent(name="poet", model=Chunks([nothing, model_says("hi", partial=True), model_says("hi")])))
    events = await talk.say("hello", run_config=STREAMED)
    assert (lines_of(events), len(events)) == (["poet…: hi", "poet: hi"], 2)


async def test_chunks_carry_usage_and_metadata_of_their_own() -> None:
    chunk = model_says("h", partial=True)
    chunk.usage_metadata, chunk.custom_metadata = REPORTED["usage_metadata"], {"cost": 1}
    talk = Talk(LlmAgent(name="poet", model=Chunks([chunk, model_says("hi")])))
    first, last = await talk.say("hello", run_config=STREAMED)
    assert (first.usage_metadata, first.custom_metadata) == (chunk.usage_metadata, {"cost": 1})
    assert (last.usage_metadata, last.custom_metadata) == (None, None)


async def test_calls_without_an_id_or_with_one_that_is_taken_get_their_own() -> None:
    calls = [call("add", "c-1", a=1, b=1), call("add", "c-1", a=2, b=2), call("add", a=3, b=3)]
    talk = Talk(LlmAgent(name="adder", model=ScriptedModel([calls, "done"]), tools=[add]))
    calling, answering, _ = await talk.say("add")
    ids = [made.id or "" for made in calling.get_function_calls()]
    assert (ids[0], len(set(ids))) == ("c-1", 3)
    assert all(one.startswith("adk-") for one in ids[1:])
    assert [response.id for response in answering.get_function_responses()] == ids
    assert calling.long_running_tool_ids == []


async def test_thoughts_are_kept_and_marked() -> None:
    reply = LlmResponse(
        content=Content(role="model", parts=[Part(text="hm", thought=True, thought_signature=b"s"), Part(text="yes")])
    )
    model = Chunks([reply], [model_says("still yes")])
    talk = Talk(LlmAgent(name="thinker", model=model))
    assert lines_of(await talk.say("sure?")) == ["thinker: (hm)", "thinker: yes"]
    (_, thought) = await talk.log()
    assert thought.content == reply.content


async def test_the_500th_model_call_is_made_and_the_501st_is_not() -> None:
    model = ScriptedModel([call("add", a=1, b=1)], loop=True)
    talk = Talk(LlmAgent(name="adder", model=model, tools=[add]))
    with pytest.raises(LlmCallsLimitExceeded) as caught:
        await talk.say("go on")
    assert caught.value.limit == 500
    assert len(model.requests) == 500
    assert lines_of((await talk.log())[-2:]) == ["adder: add -> {'result': 2}", "adder ! LlmCallsLimitExceeded"]


async def test_a_reply_by_a_callback_does_not_count_as_a_model_call() -> None:
    replies = iter([model_says("no model needed")])
    model = ScriptedModel(["one", "two"])
    agent = LlmAgent(name="a", model=model, before_model_callback=lambda **_: next(replies, None))  # pyright: ignore[reportUnknownLambdaType]
    talk = Talk(agent)
    one_call = RunConfig(max_llm_calls=1)
    assert lines_of(await talk.say("hi", run_config=one_call)) == ["a: no model needed"]
    assert lines_of(await talk.say("hi", run_config=one_call)) == ["a: one"]


async def test_zero_means_no_limit_of_model_calls() -> None:
    script = [*[call("add", a=1, b=1)] * 5, "done"]
    talk = Talk(LlmAgent(name="adder", model=ScriptedModel(script), tools=[add]))
    events = await talk.say("go on", run_config=RunConfig(max_llm_calls=0))
    assert lines_of(events[-1:]) == ["adder: done"]


async def test_max_steps_ends_the_turn_without_an_error() -> None:
    model = ScriptedModel([call("add", a=1, b=1)], loop=True)
    talk = Talk(LlmAgent(name="adder", model=model, tools=[add], max_steps=2))
    assert lines_of(await talk.say("go on")) == ["adder: add(a=1, b=1)", "adder: add -> {'result': 2}"] * 2
    assert len(model.requests) == 2


def test_max_steps_below_one_is_refused() -> None:
    with pytest.raises(AgentConfigError):
        LlmAgent(name="adder", max_steps=0)


async def test_a_failing_model_fails_the_run_and_its_words_are_kept() -> None:
    model = ScriptedModel(
        [Fails(error=ModelError("the provider is down", model="m"), after_chunks=2, text="one two 3")]
    )
    talk = Talk(LlmAgent(name="poet", model=model))
    seen: list[Event] = []

    async def read() -> None:
        async for event in talk.events("a poem", run_config=STREAMED):
            seen.append(event)

    with pytest.raises(ModelError, match="the provider is down"):
        await read()
    assert lines_of(seen) == ["poet…: one ", "poet…: two ", "poet: one two ", "poet ! ModelError"]
    last = (await talk.log())[-1]
    assert last == seen[-1]
    assert (last.id, last.interrupted, last.error_message) == (seen[0].id, True, "the provider is down")


async def test_any_exception_of_a_model_is_the_runs_outcome() -> None:
    talk = Talk(LlmAgent(name="poet", model=ScriptedModel([ZeroDivisionError("oops")])))
    with pytest.raises(ZeroDivisionError):
        await talk.say("a poem")
    assert lines_of(await talk.log()) == ["user: a poem", "poet ! ZeroDivisionError"]


async def test_the_conversation_continues_after_a_failed_run() -> None:
    model = ScriptedModel([ModelError("down", model="m"), "back again"])
    talk = Talk(LlmAgent(name="poet", model=model))
    with pytest.raises(ModelError):
        await talk.say("a poem")
    assert lines_of(await talk.say("now?")) == ["poet: back again"]
    assert shown(model.requests[-1]) == ["user: a poem", "user: now?"]


async def test_generation_settings_are_copied_for_each_request() -> None:
    config = GenerateContentConfig(temperature=0.5, labels={"team": "x"})
    model = ScriptedModel(["a", "b"])

    def hotter(callback_context: object, llm_request: LlmRequest) -> None:
        llm_request.config.temperature = (llm_request.config.temperature or 0) + 1

    agent = LlmAgent(
        name="poet", model=model, tools=[add], generate_content_config=config, before_model_callback=hotter
    )
    talk = Talk(agent)
    await talk.say("1", run_config=RunConfig(labels={"run": "y"}))
    await talk.say("2")
    assert [request.config.temperature for request in model.requests] == [1.5, 1.5]
    assert [request.model for request in model.requests] == ["scripted", "scripted"]
    assert [request.config.labels for request in model.requests] == [{"team": "x", "run": "y"}, {"team": "x"}]
    assert config == GenerateContentConfig(temperature=0.5, labels={"team": "x"})


@pytest.mark.parametrize(
    ("config", "instead"),
    [
        (GenerateContentConfig(system_instruction="be kind"), "instruction"),
        (GenerateContentConfig(tools=[]), "tools"),
        (GenerateContentConfig(response_schema={"type": "object"}), "output_schema"),
    ],
)
def test_what_belongs_to_the_agent_is_refused_in_its_generation_settings(
    config: GenerateContentConfig, instead: str
) -> None:
    with pytest.raises(AgentConfigError, match=f"give {instead} to the agent"):
        LlmAgent(name="poet", generate_content_config=config)


async def test_an_agent_without_a_model_takes_that_of_the_nearest_agent_above() -> None:
    model = ScriptedModel({"root": [call("transfer_to_agent", agent_name="leaf")], "leaf": ["I am here"]})
    leaf = LlmAgent(name="leaf")
    talk = Talk(LlmAgent(name="root", model=model, sub_agents=[leaf]))
    assert lines_of(await talk.say("leaf, please"))[-1] == "leaf: I am here"


def test_without_any_model_the_small_local_one_is_taken() -> None:
    leaf = LlmAgent(name="leaf")
    LlmAgent(name="root", sub_agents=[leaf])
    assert leaf.canonical_model.model == "local/smollm2-135m"


async def test_nothing_of_earlier_turns_is_shown_with_include_contents_none() -> None:
    model = ScriptedModel(["one", call("add", a=1, b=1), "two"])
    talk = Talk(LlmAgent(name="adder", model=model, tools=[add], include_contents="none"))
    await talk.say("first")
    await talk.say("second")
    assert [shown(request) for request in model.requests] == [
        ["user: first"],
        ["user: second"],
        ["user: second", "model: add(a=1, b=1)", "user: add -> {'result': 2}"],
    ]


async def test_sessions_that_talk_at_the_same_time_do_not_see_each_other() -> None:
    import asyncio

    def remember(word: str, tool_context: object) -> str:
        tool_context.state["word"] = word  # pyright: ignore[reportAttributeAccessIssue]
        return "noted"

    def answer_for(request: LlmRequest):
        word = request.contents[0].text()
        return f"you said {word}" if request.contents[-1].parts[0].function_response else call("remember", word=word)  # pyright: ignore[reportOptionalSubscript]

    agent = LlmAgent(name="echo", model=ScriptedModel(answer_for, delay=0.001), tools=[FunctionTool(remember)])
    first = Talk(agent)
    others: list[Talk] = []
    for number in range(20):
        other = Talk(agent)
        other.runner, other.session_id = first.runner, f"s-{number}"
        others.append(other)
    await asyncio.gather(*(other.say(other.session_id) for other in others))
    for other in others:
        assert lines_of(await other.log())[-1] == f"echo: you said {other.session_id}"
        assert await other.state() == {"word": other.session_id}


async def test_a_caller_that_stops_reading_stops_the_run_and_its_open_calls_are_answered() -> None:
    model = ScriptedModel([call("add", "c-1", a=1, b=1), "never said", "now"])
    talk = Talk(LlmAgent(name="adder", model=model, tools=[add]))
    events = talk.events("1 + 1?")
    async for event in events:
        if event.get_function_calls():
            break
    await events.aclose()
    assert lines_of(await talk.log()) == [
        "user: 1 + 1?",
        "adder: add(a=1, b=1)",
        "adder: add -> {'error': 'The call was interrupted. Whether it had any effect is not known.'}",
        "adder ! INVOCATION_ABORTED",
    ]


async def test_a_model_is_let_go_when_its_caller_stops_reading() -> None:
    model = Chunks([model_says("a", partial=True), model_says("b", partial=True), model_says("ab")])
    events = Talk(LlmAgent(name="poet", model=model)).events("a poem", run_config=STREAMED)
    async for _ in events:
        break
    await events.aclose()
    assert model.closed == 1
