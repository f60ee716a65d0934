"""After any compactions and rewinds, a prompt has whole pairs of calls and responses, and forgets no text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.turn.compaction import compact_after_run
from greenroom.agents.turn.prompt import prompt_contents
from greenroom.invocation.compaction import BaseEventsSummarizer, EventsCompactionConfig
from greenroom.invocation.context import Services
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.sessions.in_memory import InMemorySessionService
from greenroom.testing.scripted_model import ScriptedModel
from tests.runner.test_compaction import compaction_of

AGENT = LlmAgent(name="desk", model=ScriptedModel([]))

_small = st.integers(0, 9)
_steps = st.one_of(
    st.tuples(st.just("message")),
    st.tuples(st.just("message")),
    st.tuples(st.just("answer")),
    st.tuples(st.just("call"), st.integers(1, 2), st.booleans(), st.booleans()),
    st.tuples(st.just("call"), st.integers(1, 2), st.booleans(), st.booleans()),
    st.tuples(st.just("respond"), _small, st.booleans()),
    st.tuples(st.just("respond"), _small, st.booleans()),
    st.tuples(st.just("compact_runs"), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("compact_all_but"), st.integers(0, 3)),
    st.tuples(st.just("compact_times"), _small, _small),
    st.tuples(st.just("rewind"), _small),
)


class Summarizer(BaseEventsSummarizer):
    """Names what it was given: a text "t-1 …" as "[t-1]"."""

    async def maybe_summarize_events(self, *, events: list[Event]) -> Event | None:
        return compaction_of(events, summary_of(events))


def summary_of(events: list[Event]) -> str:
    return "".join(f"[{name}]" for event in events for name in names_in(event.content))


def names_in(content: Content | None) -> list[str]:
    """Of the texts that it has, or summarizes."""
    text = content.text() if content is not None else ""
    return text[1:-1].split("][") if text.startswith("[") else text.split()[:1]


class Log:
    """Writes a log, and knows which of its events no rewind has taken back.

    kept: their indexes. calls: their events, by id of the call.
    """

    def __init__(self) -> None:
        self.events: CopyOnWriteList[Event] = CopyOnWriteList()
        self.kept: list[int] = []
        self._kept_before: list[list[int]] = []
        self._run = "e-0"
        self.calls: dict[str, Event] = {}
        self._of_run: list[str] = []

    def _add(self, event: Event) -> None:
        event.timestamp = float(len(self.events))
        self._kept_before.append(self.kept)
        self.kept = [*self.kept, len(self.events)]
        self.events.append(event)
        prompt_of(self.events)  # what is kept with the log has to stay right

    def _say(self, author: str, *parts: Part, **more: Any) -> Event:
        """With a text that is longer than its name in a summary."""
        text = [Part(text=f"t-{len(self.events)} {'.' * 40}")] if more.pop("has_text", True) else []
        content = Content(role="user" if author == "user" else "model", parts=[*text, *parts])
        event = Event(invocation_id=more.pop("run", self._run), author=author, content=content, **more)
        self._add(event)
        return event

    def message(self) -> None:
        self._run = f"e-{len(self.events)}"
        self._say("user")

    def answer(self) -> None:
        self._say(AGENT.name)

    def call(self, count: int, is_long_running: bool, has_text: bool) -> None:
        ids = [f"c-{len(self.events)}-{number}" for number in range(count)]
        parts = [Part(function_call=FunctionCall(id=one, name="tool", args={})) for one in ids]
        long_running = [ids[0]] if is_long_running else []
        event = self._say(AGENT.name, *parts, has_text=has_text, long_running_tool_ids=long_running)
        self.calls.update(dict.fromkeys(ids, event))
        self._of_run += ids

    def respond(self, number: int, is_by_user: bool) -> None:
        """By the user to any long-running call, also a second time; else to a call since the last compaction."""
        kept = self.kept_events()
        ids = [one for event in kept for one in event.long_running_tool_ids or ()] if is_by_user else self._of_run
        if ids:
            call_id = ids[number % len(ids)]
            part = Part(function_response=FunctionResponse(id=call_id, name="tool", response={}))
            author = "user" if is_by_user else AGENT.name
            self._say(author, part, has_text=False, run=self.calls[call_id].invocation_id)

    def compact_runs(self, interval: int, overlap: int) -> None:
        self._compact(compaction_interval=interval, overlap_size=overlap)

    def compact_all_but(self, count: int) -> None:
        self._compact(token_threshold=1, event_retention_size=count)

    def _compact(self, **config: int) -> None:
        made = compact_after_run(
            EventsCompactionConfig(summarizer=Summarizer(), **config),
            AGENT,
            Services(sessions=InMemorySessionService()),
            self.events.snapshot(),
        )
        event = asyncio.run(made)
        if event is not None:
            self._add(event)
            self._of_run = []

    def compact_times(self, first: int, count: int) -> None:
        """As ADK, which says only the times, and may separate a call from its response."""
        kept = [event for event in self.kept_events()[first : first + count + 1] if event.actions.compaction is None]
        if kept:
            self._add(compaction_of(kept, summary_of(kept)))
            self._of_run = []

    def rewind(self, number: int) -> None:
        runs = list(dict.fromkeys(event.invocation_id for event in self.kept_events() if event.content is not None))
        if runs:
            run = runs[number % len(runs)]
            begin = next(index for index, event in enumerate(self.events) if event.invocation_id == run)
            self._add(Event(author="user", actions=EventActions(rewind_before_invocation_id=run)))
            self.kept = self._kept_before[begin]
            self._of_run = []

    def kept_events(self) -> list[Event]:
        return [self.events[index] for index in self.kept]

    def open_calls(self) -> set[str]:
        """Long-running calls that the user has not answered."""
        kept = self.kept_events()
        made = {one for event in kept for one in event.long_running_tool_ids or ()}
        answers = [event for event in kept if event.author == "user"]
        return made - {one.id or "" for event in answers for one in event.get_function_responses()}


def prompt_of(events: CopyOnWriteList[Event]) -> list[Content]:
    return list(prompt_contents(events, agent=AGENT.name, branch=None, include="default"))


def log_of(steps: Iterable[tuple[Any, ...]]) -> Log:
    log = Log()
    log.message()
    for name, *arguments in steps:
        step: Callable[..., None] = getattr(log, name)
        step(*arguments)
    log.message()  # behind an answer to an older call, a prompt would end there
    return log


@given(st.lists(_steps, min_size=10, max_size=25))
@example([("call", 1, True, True), ("respond", 0, True), ("compact_runs", 1, 0), ("message",), ("respond", 0, True)])
@example(
    [("compact_runs", 1, 0), ("message",), ("message",), ("compact_times", 3, 0), ("message",), ("compact_all_but", 0)]
)
@settings(max_examples=120, deadline=None)
def test_a_prompt_has_whole_pairs_and_each_text_itself_or_in_a_summary(steps: list[tuple[Any, ...]]) -> None:
    log = log_of(steps)
    for events in (log.events, CopyOnWriteList(log.events)):  # read event by event, and at once
        prompt = prompt_of(events)
        check_pairs(prompt)
        check_texts(prompt, log)
        check_calls(prompt, log)


def check_pairs(prompt: list[Content]) -> None:
    """Each content with calls is followed by one with exactly their responses, and there are no others."""
    expected: list[str | None] = []
    for content in prompt:
        parts = content.parts or []
        assert [part.function_response.id for part in parts if part.function_response] == expected
        expected = [part.function_call.id for part in parts if part.function_call]
    assert not expected


def check_texts(prompt: list[Content], log: Log) -> None:
    """Those that no rewind took back, and only those, are there once, or in a summary; beside a call, in both."""
    summaries = [content for content in prompt if content.text().startswith("[")]
    summarized = {name for content in summaries for name in names_in(content)}
    verbatim = [name for content in prompt if content not in summaries for name in names_in(content)]
    assert len(set(verbatim)) == len(verbatim)
    texts = [event.content for event in log.kept_events() if event.actions.compaction is None]
    assert summarized.union(verbatim) == {name for content in texts for name in names_in(content)}
    beside_calls = {name for event in log.calls.values() for name in names_in(event.content)}
    assert summarized.intersection(verbatim) <= beside_calls


def check_calls(prompt: list[Content], log: Log) -> None:
    """Those that somebody may still answer are there, and those with a response since the last compaction."""
    shown = {part.function_call.id for content in prompt for part in content.parts or () if part.function_call}
    assert log.open_calls() <= shown
    kept = log.kept_events()
    last = max((at for at, event in enumerate(kept) if event.actions.compaction is not None), default=-1)
    assert {one.id for event in kept[last + 1 :] for one in event.get_function_responses()} <= shown
