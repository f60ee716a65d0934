"""Graphs of LangGraph as agents."""

from __future__ import annotations

import asyncio
import operator
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from langchain_core.messages import AIMessage, BaseMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import Send, interrupt

from greenroom.agents.frameworks.langgraph.agent import LangGraphAgent
from greenroom.errors import AgentConfigError, InvalidRequest
from greenroom.records.event import Event
from tests.agents.frameworks.contract import *  # noqa: F403 - the contract's tests
from tests.agents.frameworks.contract import contents
from tests.agents.frameworks.langgraph_agents import LangGraphFramework
from tests.agents.talk import STREAMED, Talk, answer, call, lines_of


@pytest.fixture
def framework() -> LangGraphFramework:
    return LangGraphFramework()


def desk(graph: Any, **options: Any) -> Talk:
    return Talk(LangGraphAgent(name="desk", graph=graph, **options))


def one_node(node: Any, schema: Any = MessagesState) -> Any:
    return StateGraph(schema).add_node("node", node).add_edge(START, "node").add_edge("node", END)


def requests(events: list[Event]) -> dict[str, Any]:
    """The values of the requests for input, by id."""
    calls = [one for event in events if event.long_running_tool_ids for one in event.get_function_calls()]
    return {one.id or "": (one.args or {})["payload"] for one in calls}


def reply(request_id: str, value: Any) -> Any:
    return answer("adk_request_input", request_id, {"result": value})


class Joke(TypedDict):
    topic: str
    joke: str


class Found(TypedDict):
    found: Annotated[list[str], operator.add]


class Counted(MessagesState):
    language: str
    count: Annotated[int, operator.add]


@dataclass
class Order:
    number: int


class Ordered(MessagesState):
    order: Order


class Unnamed(TypedDict):
    messages: list[BaseMessage]
    value: Any


class TwoFields(TypedDict):
    a: str
    b: str


async def test_a_node_that_is_no_coroutine_calls_its_model_in_a_thread(framework: LangGraphFramework) -> None:
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel

    model = GenericFakeChatModel(messages=iter([AIMessage("Hello from a thread")]))
    talk = desk(one_node(lambda state: {"messages": [model.invoke(state["messages"])]}))

    events = await talk.say("hello", run_config=STREAMED)

    assert [event.content.text() for event in events if event.partial and event.content] == [
        "Hello", " ", "from", " ", "a", " ", "thread"
    ]  # fmt: skip
    assert lines_of(contents(events)) == ["desk: Hello from a thread"]


async def test_a_text_that_is_no_message_of_the_state_is_shown_once(framework: LangGraphFramework) -> None:
    model = framework.model("Why did the cat cross the road?")

    async def write(state: Joke) -> Any:
        return {"joke": (await model.ainvoke(state["topic"])).content}

    talk = desk(one_node(write, Joke))

    events = await talk.say('{"topic": "cats"}')

    assert framework.prompts == [["cats"]]
    assert lines_of(contents(events)) == ["desk: Why did the cat cross the road?"]
    assert await talk.state() == {"topic": "cats", "joke": "Why did the cat cross the road?"}


async def test_a_node_that_makes_its_own_message_of_a_reply_says_it_once(framework: LangGraphFramework) -> None:
    model = framework.model("Good morning.")

    async def chat(state: MessagesState) -> Any:
        return {"messages": [AIMessage((await model.ainvoke(state["messages"])).text)]}

    events = contents(await desk(one_node(chat)).say("hello"))

    assert lines_of(events) == ["desk: Good morning."]
    assert events[0].usage_metadata is not None


async def test_a_model_that_is_tagged_as_hidden_only_counts(framework: LangGraphFramework) -> None:
    model = framework.model("billing").with_config(tags=["nostream"])

    async def route(state: MessagesState) -> Any:
        await model.ainvoke(state["messages"])
        return {"messages": [AIMessage("This is the billing desk.")]}

    events = await desk(one_node(route)).say("hello", run_config=STREAMED)

    assert lines_of(contents(events)) == ["desk: This is the billing desk."]
    assert not any(event.partial and event.content for event in events)
    assert len([event for event in events if event.usage_metadata]) == 1


async def test_tasks_beside_each_other_ask_at_once_and_go_on_when_all_are_answered() -> None:
    ran: list[str] = []

    async def ask(state: Any) -> Any:
        said = interrupt({"about": state["about"]})
        ran.append(state["about"])
        return {"found": [f"{state['about']}: {said}"]}

    async def quick(state: Any) -> Any:
        ran.append("quick")
        return {"found": ["quick"]}

    def split(state: Found) -> list[Send]:
        return [Send("ask", {"about": "a"}), Send("quick", {}), Send("ask", {"about": "b"})]

    graph = StateGraph(Found).add_node("ask", ask).add_node("quick", quick)
    graph.add_conditional_edges(START, split, ["ask", "quick"])
    talk = desk(graph)

    asked = requests(await talk.say('{"found": []}'))
    assert sorted(payload["about"] for payload in asked.values()) == ["a", "b"]
    first, second = sorted(asked, key=lambda one: asked[one]["about"])

    assert await talk.say(reply(second, "two")) == []
    assert ran == ["quick"]
    await talk.say(reply(first, "one"))

    assert (await talk.state())["found"] == ["a: one", "quick", "b: two"]
    assert sorted(ran) == ["a", "b", "quick"]


async def test_a_node_asks_twice() -> None:
    def ask(state: MessagesState) -> Any:
        first = interrupt("first?")
        second = interrupt("second?")
        return {"messages": [AIMessage(f"{first} and {second}")]}

    talk = desk(one_node(ask))

    [(one, payload)] = requests(await talk.say("hello")).items()
    assert payload == "first?"
    [(two, payload)] = requests(await talk.say(reply(one, 1))).items()
    assert payload == "second?"
    assert one != two
    assert lines_of(contents(await talk.say(reply(two, 2)))) == ["desk: 1 and 2"]


async def test_a_graph_within_a_graph_continues_where_it_asked(framework: LangGraphFramework) -> None:
    ran: list[str] = []

    def before(state: MessagesState) -> Any:
        ran.append("before")
        return {"messages": [AIMessage("I need to ask.")]}

    def ask(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"You said {interrupt('go on?')}.")]}

    def after(state: MessagesState) -> Any:
        ran.append("after")
        return {"messages": [AIMessage("Done.")]}

    inner = StateGraph(MessagesState).add_sequence([before, ask]).add_edge(START, "before").compile()
    graph = StateGraph(MessagesState).add_node("inner", inner).add_node("after", after)
    talk = desk(graph.add_edge(START, "inner").add_edge("inner", "after"))

    events = await talk.say("hello")
    [request] = requests(events)
    assert lines_of(contents(events))[0] == "desk: I need to ask."

    assert lines_of(contents(await talk.say(reply(request, "yes")))) == ["desk: You said yes.", "desk: Done."]
    assert ran == ["before", "after"]


async def test_the_functional_interface() -> None:
    calls: list[str] = []

    @task
    async def write(topic: str) -> str:
        calls.append(topic)
        return f"An essay about {topic}"

    @entrypoint()
    async def essay(topic: str) -> str:
        text = await write(topic)
        return f"{text}, {interrupt(text)}"

    talk = desk(essay)

    [(request, payload)] = requests(await talk.say("cats")).items()
    assert payload == "An essay about cats"

    assert lines_of(contents(await talk.say(reply(request, "approved")))) == ["desk: An essay about cats, approved"]
    assert calls == ["cats"]


async def test_a_breakpoint_asks_whether_to_go_on() -> None:
    ran: list[str] = []
    graph = one_node(lambda state: ran.append("node")).compile(interrupt_before=["node"])
    talk = desk(graph)

    [(request, payload)] = requests(await talk.say("hello")).items()
    assert payload == {"next": ["node"]}
    assert ran == []

    await talk.say(reply(request, "go on"))
    assert ran == ["node"]


async def test_the_approvals_of_langchains_middleware() -> None:
    def ask(state: MessagesState) -> Any:
        actions = [
            {"name": "pay", "args": {"amount": 5}},
            {"name": "pay", "args": {"amount": 7}, "description": "Pay 7?"},
        ]
        review = [{"action_name": "pay", "allowed_decisions": ["approve", "edit", "reject"]}]
        said = interrupt({"action_requests": actions, "review_configs": review})
        return {"messages": [AIMessage(msgspec.json.encode(said).decode())]}

    talk = desk(one_node(ask))

    first, second = requests(await talk.say("pay"))
    await talk.say(reply(first, {"confirmed": True}))
    events = await talk.say(reply(second, {"confirmed": False, "hint": "too much"}))

    decisions = [{"type": "approve"}, {"type": "reject", "message": "too much"}]
    assert contents(events)[0].content.text() == msgspec.json.encode({"decisions": decisions}).decode()  # pyright: ignore


async def test_a_run_that_waits_is_not_disturbed_by_another_one_and_both_are_remembered() -> None:
    seen: list[list[str]] = []

    def ask(state: MessagesState) -> Any:
        texts = [str(message.text) for message in state["messages"]]
        seen.append(texts)
        if not texts[-1].startswith("ask"):
            return {"messages": [AIMessage(f"re: {texts[-1]}")]}
        return {"messages": [AIMessage(f"{texts[-1]}: {interrupt(texts[-1])}")]}

    talk = desk(one_node(ask))
    await talk.say("hello")

    [request] = requests(await talk.say("ask"))
    await talk.say("weather?")
    assert lines_of(contents(await talk.say(reply(request, "yes")))) == ["desk: ask: yes"]

    for message in ("and now?", "and then?"):
        assert lines_of(contents(await talk.say(message))) == [f"desk: re: {message}"]

    first = ["hello", "re: hello"]
    both = [*first, "weather?", "re: weather?", "ask", "ask: yes", "and now?"]
    assert seen[2] == [*first, "weather?"]
    assert seen[3] == [*first, "ask"]
    assert seen[4] == both
    assert seen[5] == [*both, "re: and now?", "and then?"]


async def test_state_goes_in_and_comes_out() -> None:
    seen: list[Any] = []

    def note(state: Counted) -> Any:
        seen.append((state.get("language"), state.get("count")))
        return {"count": 1}

    talk = desk(one_node(note, Counted))

    await talk.say("hello", state_delta={"language": "nb"})
    await talk.say("again")
    await talk.say("once more", state_delta={"language": "en"})

    assert seen == [("nb", 0), ("nb", 1), ("en", 2)]
    assert await talk.state() == {"language": "en", "count": 3}


async def test_what_a_node_writes_to_the_stream_is_shown_and_not_stored() -> None:
    def work(state: MessagesState) -> Any:
        get_stream_writer()({"progress": 50})
        return {"messages": [AIMessage("Done.")]}

    talk = desk(one_node(work))
    events = await talk.say("hello", run_config=STREAMED)

    assert [event.custom_metadata for event in events if event.partial] == [{"langgraph": {"custom": {"progress": 50}}}]
    assert lines_of(contents(await talk.log())) == ["user: hello", "desk: Done."]


async def test_an_instruction_stands_before_the_first_message() -> None:
    seen: list[list[str]] = []

    def note(state: MessagesState) -> Any:
        seen.append([f"{message.type}: {message.text}" for message in state["messages"]])

    talk = desk(one_node(note), instruction="Be brief.")
    await talk.say("one")
    await talk.say("two")

    assert seen == [["system: Be brief.", "human: one"], ["system: Be brief.", "human: one", "human: two"]]


async def test_a_checkpointer_of_the_graph_is_not_used(framework: LangGraphFramework) -> None:
    saver = InMemorySaver()
    graph = one_node(lambda state: {"messages": [AIMessage(str(len(state["messages"])))]}).compile(checkpointer=saver)
    talk = desk(graph)

    await talk.say("one")
    events = await talk.say("two")

    assert lines_of(contents(events)) == ["desk: 3"]
    assert list(saver.list(None)) == []


async def test_the_log_grows_with_the_conversation_and_not_with_its_square() -> None:
    talk = desk(one_node(lambda state: {"messages": [AIMessage("x" * 1000)]}))

    sizes: list[int] = []
    for turn in range(20):
        await talk.say(f"message {turn}")
        log = await talk.log()
        sizes.append(sum(len(msgspec.json.encode(event)) for event in log))

    assert sizes[-1] - sizes[-2] < 1.1 * (sizes[2] - sizes[1])


async def test_classes_in_the_annotations_of_the_state_are_read_back() -> None:
    seen: list[object] = []

    def note(state: Ordered) -> Any:
        seen.append(state.get("order"))
        return {"order": Order(7)}

    talk = desk(one_node(note, Ordered))
    await talk.say("one")
    await talk.say("two")

    assert seen == [None, Order(7)]


async def test_classes_that_nobody_named_are_not_made_from_a_log() -> None:
    seen: list[object] = []

    def note(state: Any) -> Any:
        seen.append(state.get("value"))
        return {"value": Order(7)}

    talk = desk(one_node(note, Unnamed))
    await talk.say("one")
    await talk.say("two")

    assert seen == [None, {"number": 7}]


async def test_a_task_that_has_ended_is_not_run_again_when_another_one_fails(framework: LangGraphFramework) -> None:
    ran: list[str] = []
    may_fail = asyncio.Event()

    async def good(state: Found) -> Any:
        ran.append("good")
        return {"found": ["good"]}

    async def bad(state: Found) -> Any:
        ran.append("bad")
        if ran.count("bad") == 1:
            await asyncio.sleep(0.02)
            raise ConnectionError("away")
        return {"found": ["bad"]}

    graph = StateGraph(Found).add_node("good", good).add_node("bad", bad).add_edge(START, "good").add_edge(START, "bad")
    talk = desk(graph)
    may_fail.set()

    with pytest.raises(ConnectionError):
        await talk.say('{"found": []}')
    log = await talk.log()
    run_id = log[0].invocation_id
    states = [event for event in log if event.actions.agent_state]

    assert [task[3] for event in states for task in event.actions.agent_state["writes"]] == [  # pyright: ignore
        "~__pregel_pull, good"
    ]
    assert run_id


def test_a_graph_is_needed() -> None:
    with pytest.raises(AgentConfigError, match="must be a graph of LangGraph, not str"):
        LangGraphAgent(name="desk", graph="a graph")


async def test_a_graph_without_messages_needs_its_fields() -> None:
    with pytest.raises(InvalidRequest, match="Send a JSON object with its fields a, b"):
        await desk(one_node(lambda state: {}, TwoFields)).say("hello")


async def test_calls_beside_each_other_have_one_event_of_responses(framework: LangGraphFramework) -> None:
    async def look_up(order: int) -> str:
        """Looks up."""
        return f"order {order}"

    script = [[call("look_up", "c-1", order=1), call("look_up", "c-2", order=2)], "Both are there."]
    talk = Talk(framework.agent(*script, tools=[look_up]))

    events = contents(await talk.say("both?"))

    assert [len(event.get_function_responses()) for event in events] == [0, 2, 0]
