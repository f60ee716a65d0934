"""After any crash, a model gets a history that every provider takes.

Each content with calls is followed at once by one content with exactly their responses, and there are no others.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Literal

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.turn.prompt import prompt_contents
from greenroom.log.calls import INTERRUPTED, PENDING
from greenroom.records.content import Content, FunctionCall, FunctionResponse, Part
from greenroom.records.copy_on_write import CopyOnWriteList
from greenroom.records.event import Event, EventActions
from greenroom.records.run import RunStatus
from tests.durability.engines import asking, engine_over, finish, stores_in
from tests.durability.scripts import model_of
from tests.seed import SEED

LOGS = 600
LENGTH = 14


class Writer:
    """Writes a log as runs that end anywhere leave it: with calls that nobody, somebody or a later message answers."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.log: CopyOnWriteList[Event] = CopyOnWriteList()
        self._open: dict[str, list[FunctionCall]] = {"desk": [], "shop": []}
        self._count = 0

    def add_any(self) -> None:
        steps: list[Callable[[], None]] = [
            self._message, self._text, self._call, self._call, self._answer, self._answer, self._late_answer,
            self._error, self._patch, self._abort,
        ]  # fmt: skip
        self._chance.choice(steps)()

    def _add(self, author: str, *parts: Part, role: str | None = None, **more: str | list[str]) -> None:
        content = Content(role=role or ("user" if author == "user" else "model"), parts=list(parts)) if parts else None
        self.log.append(Event(author=author, content=content, **more))  # pyright: ignore[reportArgumentType]

    def _author(self) -> str:
        return self._chance.choice(("desk", "desk", "shop"))

    def _message(self) -> None:
        self._add("user", Part(text="hello"))

    def _text(self) -> None:
        self._add(self._author(), Part(text="good day"))

    def _call(self) -> None:
        author, calls = self._author(), list[FunctionCall]()
        for _ in range(self._chance.choice((1, 1, 2, 3))):
            self._count += 1
            calls.append(FunctionCall(id=f"c-{self._count}", name="tool", args={}))
        self._open[author] += calls
        text = [Part(text="one moment")] if self._chance.random() < 0.3 else []
        long_running = [c.id or "" for c in calls if self._chance.random() < 0.3]
        self._add(author, *text, *(Part(function_call=c) for c in calls), long_running_tool_ids=long_running)

    def _answer(self) -> None:
        """By the agent: to all, some, or in another order."""
        author = self._author()
        self._answer_as(author, author)

    def _late_answer(self) -> None:
        """By the user, to any calls that were ever left open."""
        self._answer_as("user", self._author())

    def _answer_as(self, author: str, caller: str) -> None:
        calls = self._open[caller]
        if not calls:
            return
        chosen = self._chance.sample(calls, self._chance.randint(1, len(calls)))
        if self._chance.random() < 0.8:  # else it may be answered again
            self._open[caller] = [c for c in calls if c not in chosen]
        parts = [Part(function_response=FunctionResponse(id=c.id, name=c.name, response={"ok": True})) for c in chosen]
        self._add(author, *parts, role="user")

    def _error(self) -> None:
        self._add(self._author(), error_code="ModelError", error_message="overloaded")

    def _patch(self) -> None:
        self.log.append(Event(author="user", actions=EventActions(state_delta={"theme": "dark"})))

    def _abort(self) -> None:
        author = self._author()
        calls, self._open[author] = self._open[author], []
        parts = [
            Part(function_response=FunctionResponse(id=c.id, name=c.name, response=dict(INTERRUPTED))) for c in calls
        ]
        self._add(author, *parts, role="user", error_code="INVOCATION_ABORTED")


@pytest.mark.parametrize("include", ["default", "none"])
def test_calls_are_followed_by_their_responses_whatever_is_missing(include: Literal["default", "none"]) -> None:
    print(f"GREENROOM_SEED={SEED}")
    chance = random.Random(SEED)
    for number in range(LOGS):
        writer = Writer(chance)
        for _ in range(LENGTH):
            writer.add_any()
            grown = prompt_contents(writer.log, agent="desk", branch=None, include=include)
            _check_prompt(grown, f"log {number}: {_short(writer.log)}")
            anew = prompt_contents(CopyOnWriteList(writer.log), agent="desk", branch=None, include=include)
            assert grown == anew, f"log {number}, read bit by bit, gives another prompt: {_short(writer.log)}"


def test_every_call_of_the_agent_is_shown_once_with_its_newest_answer() -> None:
    print(f"GREENROOM_SEED={SEED}")
    chance = random.Random(SEED)
    for _ in range(LOGS // 3):
        writer = Writer(chance)
        for _ in range(LENGTH):
            writer.add_any()
        # A message is never about older calls, so all of the history is shown.
        writer.log.append(Event(author="user", content=Content(role="user", parts=[Part(text="hello")])))
        contents = prompt_contents(writer.log, agent="desk", branch=None, include="default")
        shown = [p.function_response for c in contents for p in c.parts or () if p.function_response is not None]
        long_running = {i for event in writer.log for i in event.long_running_tool_ids or ()}
        newest = {r.id: r.response for event in writer.log for r in event.get_function_responses()}
        made = [c.id for event in writer.log if event.author == "desk" for c in event.get_function_calls()]
        expected = [newest.get(i) or (PENDING if i in long_running else INTERRUPTED) for i in made]
        assert [(r.id, r.response) for r in shown] == list(zip(made, expected, strict=True)), _short(writer.log)


async def test_a_message_into_a_damaged_session_reaches_the_model_with_a_whole_history() -> None:
    chance = random.Random(SEED)
    for _ in range(30):
        writer = Writer(chance)
        for _ in range(LENGTH):
            writer.add_any()
        model = model_of("Good day.")
        async with stores_in(None) as stores, engine_over(stores, LlmAgent(name="desk", model=model)) as engine:
            session = await stores.session()
            for event in writer.log:
                await stores.sessions.append(session, event)
            assert (await finish(engine, asking("hello"))).status is RunStatus.SUCCEEDED
            contents = CopyOnWriteList(model.requests[-1].contents)
            _check_prompt(contents, _short(writer.log))
            assert contents[-1] == Content(role="user", parts=[Part(text="hello")])


def _check_prompt(contents: CopyOnWriteList[Content], where: str) -> None:
    place = 0
    while place < len(contents):
        calls = [p.function_call.id for p in contents[place].parts or () if p.function_call is not None]
        assert not _responses(contents[place]), f"responses without calls: {where}"
        place += 1
        if calls:
            assert place < len(contents), f"calls without responses: {where}"
            assert _responses(contents[place]) == calls, f"other responses than calls: {where}"
            assert len(contents[place].parts or ()) == len(calls)
            assert contents[place].role == "user"
            place += 1


def _responses(content: Content) -> list[str | None]:
    return [p.function_response.id for p in content.parts or () if p.function_response is not None]


def _short(log: CopyOnWriteList[Event]) -> str:
    def one(event: Event) -> str:
        calls = [f"?{c.id}" for c in event.get_function_calls()]
        answers = [f"!{r.id}" for r in event.get_function_responses()]
        return f"{event.author}({','.join(calls + answers) or ('text' if event.content else '-')})"

    return " ".join(map(one, log))
