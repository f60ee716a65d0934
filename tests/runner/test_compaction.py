"""Compaction of histories: rows 3.3 to 3.7 and 1.16.6 of ADK, and part 8 of its runtime."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.agent import BaseAgent
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import ParallelAgent
from greenroom.apps.app import App
from greenroom.errors import AgentConfigError, ModelError
from greenroom.invocation.compaction import BaseEventsSummarizer, EventsCompactionConfig, LlmEventSummarizer
from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part, UserContent
from greenroom.records.event import Event, EventActions, EventCompaction
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.session import Session
from greenroom.runner.in_memory import InMemoryRunner
from greenroom.runner.runner import Runner
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool

WHERE: dict[str, Any] = {"user_id": "ada", "session_id": "s"}


class Summarizer(BaseEventsSummarizer):
    """Numbers its summaries: S1, S2, ..."""

    def __init__(self) -> None:
        self.given: list[list[str]] = []

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        texts = [event.content.text() for event in events if event.content is not None]
        self.given.append(texts)
        return compaction_of(events, f"S{len(self.given)}")


def compaction_of(events: list[Event], text: str) -> Event:
    summary = EventCompaction(
        start_timestamp=events[0].timestamp,
        end_timestamp=events[-1].timestamp,
        compacted_content=Content(role="model", parts=[Part(text=text)]),
    )
    return Event(invocation_id="e-compaction", author="user", actions=EventActions(compaction=summary))


async def runner_of(agent: BaseAgent, **config: Any) -> Runner:
    app = App(name="a", root_agent=agent, events_compaction_config=EventsCompactionConfig(**config))
    runner = InMemoryRunner(app=app)
    await runner.session_service.create_session(app_name="a", **WHERE)
    return runner


async def say(runner: Runner, words: str, run: str | None = None) -> list[Event]:
    return [e async for e in runner.run_async(**WHERE, new_message=UserContent(words), invocation_id=run)]


async def session_of(runner: Runner) -> Session:
    session = await runner.session_service.get_session(app_name="a", **WHERE)
    assert session is not None
    return session


def texts(contents: Any) -> list[str | None]:
    return [part.text for content in contents for part in content.parts or ()]


def echo(request: LlmRequest) -> str:
    return f"re {request.contents[-1].text()}"


async def test_the_window_is_summarized_after_each_interval_with_its_overlap() -> None:
    summarizer, model = Summarizer(), ScriptedModel(echo)
    runner = await runner_of(
        LlmAgent(name="a", model=model), summarizer=summarizer, compaction_interval=2, overlap_size=1
    )
    shown = [event for number in "12345" for event in await say(runner, number)]
    assert summarizer.given == [["1", "re 1", "2", "re 2"], ["2", "re 2", "3", "re 3", "4", "re 4"]]
    assert not any(event.actions.compaction for event in shown)
    assert texts(model.requests[2].contents) == ["S1", "3"]
    assert texts(model.requests[4].contents) == ["S1", "S2", "5"]
    events = (await session_of(runner)).events
    assert len(events) == 12
    stored = events[4]
    assert stored.author == "user"
    assert stored.content is None
    assert stored.actions.compaction is not None
    assert stored.actions.compaction.start_timestamp == events[0].timestamp
    assert stored.actions.compaction.end_timestamp == events[3].timestamp


async def test_a_long_prompt_is_summarized_before_the_call_and_the_summary_is_rolling() -> None:
    summarizer, model = Summarizer(), ScriptedModel(echo)
    runner = await runner_of(
        LlmAgent(name="a", model=model), summarizer=summarizer, token_threshold=5, event_retention_size=1
    )
    for word in ("first" * 3, "second" * 3, "third" * 5):
        await say(runner, word)
    assert [texts(request.contents) for request in model.requests[1:]] == [["S2", "second" * 3], ["S4", "third" * 5]]
    assert summarizer.given[1][0] == "S1"


async def test_the_reported_size_of_the_prompt_decides() -> None:
    def reply(request: LlmRequest) -> LlmResponse:
        usage = GenerateContentResponseUsageMetadata(prompt_token_count=100 * len(request.contents))
        return LlmResponse(content=Content(role="model", parts=[Part(text="yes")]), usage_metadata=usage)

    summarizer, model = Summarizer(), ScriptedModel(reply)
    runner = await runner_of(
        LlmAgent(name="a", model=model), summarizer=summarizer, token_threshold=300, event_retention_size=2
    )
    for number in "123":
        await say(runner, number)
    assert summarizer.given == [["1", "yes"], ["S1", "2", "yes"]]
    assert texts(model.requests[2].contents) == ["S1", "2", "yes", "3"]


async def test_a_call_in_a_long_run_is_not_separated_from_its_response() -> None:
    summarizer = Summarizer()
    model = ScriptedModel(
        [[FunctionCall(id=f"c-{n}", name="look"), FunctionCall(id=f"d-{n}", name="look")] for n in "123"] + ["done"]
    )  # type: ignore[list-item]
    tool = FunctionTool(lambda: "x" * 400, name="look")
    runner = await runner_of(
        LlmAgent(name="a", model=model, tools=[tool]),
        summarizer=summarizer,
        token_threshold=100,
        event_retention_size=1,
    )
    await say(runner, "go")
    assert summarizer.given
    for request in model.requests:
        assert calls_in(request) == responses_in(request)


def calls_in(request: LlmRequest) -> list[str | None]:
    parts = [part for content in request.contents for part in content.parts or ()]
    return [part.function_call.id for part in parts if part.function_call is not None]


def responses_in(request: LlmRequest) -> list[str | None]:
    parts = [part for content in request.contents for part in content.parts or ()]
    return [part.function_response.id for part in parts if part.function_response is not None]


async def test_an_open_call_is_never_summarized() -> None:
    summarizer = Summarizer()
    model = ScriptedModel(["zero", FunctionCall(id="c-1", name="job"), "waits", "one", "two", "three", "paid"])
    job = LongRunningFunctionTool(lambda: {"status": "pending"}, name="job")
    runner = await runner_of(
        LlmAgent(name="a", model=model, tools=[job]), summarizer=summarizer, compaction_interval=1, overlap_size=0
    )
    for number in "01234":
        await say(runner, number)
    assert summarizer.given[0] == ["0", "zero"]
    assert not any("waits" in text for given in summarizer.given for text in given)
    answer = FunctionResponse(id="c-1", name="job", response={"done": True})
    message = Content(role="user", parts=[Part(function_response=answer)])
    _ = [e async for e in runner.run_async(**WHERE, new_message=message)]
    assert calls_in(model.requests[-1]) == responses_in(model.requests[-1]) == ["c-1"]
    assert "waits" in " ".join(summarizer.given[-1])


async def test_a_rewind_takes_a_compaction_back() -> None:
    summarizer, model = Summarizer(), ScriptedModel(echo)
    runner = await runner_of(
        LlmAgent(name="a", model=model), summarizer=summarizer, compaction_interval=2, overlap_size=0
    )
    for number in "123":
        await say(runner, number, f"e-{number}")
    await runner.rewind_async(**WHERE, rewind_before_invocation_id="e-2")
    await say(runner, "4", "e-4")
    assert texts(model.requests[-1].contents) == ["1", "re 1", "4"]
    await say(runner, "5", "e-5")
    assert texts(model.requests[-1].contents) == ["S2", "5"]


async def test_the_models_own_summarizer_asks_it_once_and_its_tokens_are_on_the_event() -> None:
    usage = GenerateContentResponseUsageMetadata(prompt_token_count=7, total_token_count=9)
    model = ScriptedModel(
        [
            "one",
            LlmResponse(content=Content(role="model", parts=[Part(text="in short")]), usage_metadata=usage),
            "two",
            "in short again",
        ]
    )
    runner = await runner_of(LlmAgent(name="a", model=model), compaction_interval=1, overlap_size=0)
    await say(runner, "hello")
    text = model.requests[1].contents[0].text()
    assert "user said: <quoted>hello</quoted>" in text
    assert "a said: <quoted>one</quoted>" in text
    compaction = (await session_of(runner)).events[-1]
    assert compaction.usage_metadata == usage
    assert runner.app is not None
    config = runner.app.events_compaction_config
    assert config is not None
    assert isinstance(config.summarizer, LlmEventSummarizer)
    await say(runner, "again")
    assert texts(model.requests[2].contents) == ["in short", "again"]


async def test_a_summarizer_that_fails_or_has_nothing_to_say_leaves_the_history_as_it_is() -> None:
    class Failing(BaseEventsSummarizer):
        async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
            if len(events) == 2:
                raise ModelError("down", model="m")
            return None

    model = ScriptedModel(echo)
    runner = await runner_of(
        LlmAgent(name="a", model=model), summarizer=Failing(), compaction_interval=1, overlap_size=0
    )
    for number in "123":
        await say(runner, number)
    assert texts(model.requests[-1].contents) == ["1", "re 1", "2", "re 2", "3"]


async def test_parallel_branches_summarize_their_history_once() -> None:
    summarizer = Summarizer()
    model = ScriptedModel(echo)
    agents: list[BaseAgent] = [LlmAgent(name=name, model=model) for name in ("b", "c")]
    runner = await runner_of(
        ParallelAgent(name="a", sub_agents=agents), summarizer=summarizer, token_threshold=100, event_retention_size=1
    )
    await say(runner, "x" * 300)
    await say(runner, "y" * 50)
    assert len(summarizer.given) == 1


def test_a_root_without_a_model_needs_a_summarizer() -> None:
    config = EventsCompactionConfig(compaction_interval=1, overlap_size=0)
    root = Workflow(name="w", edges=[("START", LlmAgent(name="n", model=ScriptedModel(echo)))])
    with pytest.raises(ValueError, match="summarizer"):
        App(name="a", root_agent=root, events_compaction_config=config)
    config.summarizer = Summarizer()
    App(name="a", root_agent=root, events_compaction_config=config)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"overlap_size": 0},
        {"event_retention_size": 3},
        {"compaction_interval": 0, "overlap_size": 0},
        {"compaction_interval": 0},
        {"compaction_interval": 1, "overlap_size": -1},
        {"token_threshold": 0, "event_retention_size": 1},
        {"token_threshold": 5, "event_retention_size": -1},
        {"token_threshold": 5, "overlap_size": 1},
        {"compaction_interval": 1, "overlap_size": 0, "event_retention_size": 1},
    ],
)
def test_a_part_without_its_trigger_and_numbers_out_of_range_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(AgentConfigError):
        EventsCompactionConfig(**values)


async def test_the_overlap_may_be_left_out() -> None:
    summarizer = Summarizer()
    agent = LlmAgent(name="a", model=ScriptedModel(echo))
    runner = await runner_of(agent, summarizer=summarizer, compaction_interval=2)
    for number in "1234":
        await say(runner, number)
    assert summarizer.given == [["1", "re 1", "2", "re 2"], ["3", "re 3", "4", "re 4"]]


async def test_the_retained_events_may_be_left_out() -> None:
    summarizer = Summarizer()
    agent = LlmAgent(name="a", model=ScriptedModel(echo))
    runner = await runner_of(agent, summarizer=summarizer, token_threshold=5)
    await say(runner, "a long message, which is over the threshold")
    assert summarizer.given


def test_a_config_says_whether_it_has_a_sliding_window() -> None:
    assert EventsCompactionConfig(compaction_interval=2).has_sliding_window_compaction_config
    assert not EventsCompactionConfig(token_threshold=2).has_sliding_window_compaction_config


async def test_a_compaction_by_adk_is_honoured_by_its_times() -> None:
    model = ScriptedModel(echo)
    runner = InMemoryRunner(app=App(name="a", root_agent=LlmAgent(name="a", model=model)))
    log = [
        Event(invocation_id="e-1", author="user", content=UserContent("1"), timestamp=1.0),
        Event(invocation_id="e-1", author="a", content=Content(role="model", parts=[Part(text="one")]), timestamp=2.0),
        Event(invocation_id="e-2", author="user", content=UserContent("2"), timestamp=3.0),
        Event(
            invocation_id="e-2",
            author="a",
            content=Content(role="model", parts=[Part(function_call=FunctionCall(id="c", name="f"))]),
            timestamp=4.0,
        ),
        Event(
            invocation_id="e-2",
            author="a",
            content=Content(
                role="user", parts=[Part(function_response=FunctionResponse(id="c", name="f", response={}))]
            ),
            timestamp=5.0,
        ),
    ]
    log.append(compaction_of(log[:1], "[1]"))
    log.append(compaction_of(log[:4], "[1 one 2]"))
    await runner.session_service.create_session(app_name="a", **WHERE, events=log)
    await say(runner, "3")
    request = model.requests[-1]
    assert texts(request.contents) == ["[1 one 2]", None, None, "3"]
    assert calls_in(request) == responses_in(request) == ["c"]


async def test_a_second_answer_to_a_call_that_was_summarized_is_in_the_prompt() -> None:
    summarizer = Summarizer()
    model = ScriptedModel([FunctionCall(id="c-1", name="job"), "waits", "half", "one", "two", "paid"])
    job = LongRunningFunctionTool(lambda: {"status": "pending"}, name="job")
    runner = await runner_of(
        LlmAgent(name="a", model=model, tools=[job]), summarizer=summarizer, compaction_interval=2, overlap_size=0
    )
    half, done = [
        Content(role="user", parts=[Part(function_response=FunctionResponse(id="c-1", name="job", response=response))])
        for response in ({"half": True}, {"done": True})
    ]
    for message in (UserContent("0"), half, UserContent("1"), UserContent("2"), done):
        _ = [e async for e in runner.run_async(**WHERE, new_message=message)]
    assert "half" in summarizer.given[0]
    assert calls_in(model.requests[-1]) == ["c-1"]
    assert model.requests[-1].contents[-1] == done
