"""The apps that the dev UI is tested with: what each says depends on the last message only."""

from __future__ import annotations

from typing import Any

from greenroom import Event
from greenroom.agents.agent import BaseAgent
from greenroom.agents.agent_tool import AgentTool
from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflow.workflow import Workflow
from greenroom.agents.workflows import ParallelAgent
from greenroom.errors import ModelError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.content import Blob, FunctionCall, Part
from greenroom.records.human_requests import RequestInput
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import Fails, ScriptedModel
from greenroom.tools.builtin.sleep import wait, wait_for
from greenroom.tools.functions.function_tool import FunctionTool, LongRunningFunctionTool

CHUNK_SECONDS = 0.05

MARKDOWN = """## Two ways

1. **Wait** for the lease to end.
2. Call `release()`, then *try again*.

| city | degrees |
|---|---|
| Oslo | -3 |
| Bergen | 4 |

```python
def release(lease: Lease) -> None:
    lease.close()
```
"""


def weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "degrees": {"Oslo": -3, "Bergen": 4}.get(city, 11), "sky": "clear"}


def broken(path: str) -> str:
    """Reads a file."""
    raise OSError(f"{path}: no such file")


async def take_note(text: str, tool_context: ToolContext) -> dict[str, Any]:
    """Writes a note down."""
    part = Part(inline_data=Blob(data=text.encode(), mime_type="text/plain"))
    version = await tool_context.save_artifact("note.txt", part)
    tool_context.state["city"] = "Bergen" if tool_context.state.get("city") == "Oslo" else "Oslo"
    return {"version": version}


def delete_rows(table: str, count: int) -> dict[str, Any]:
    """Deletes rows."""
    return {"deleted": count, "table": table}


def order_report(subject: str) -> dict[str, Any]:
    """Orders a report, which takes a while."""
    return {"status": "pending", "ticket": subject}


_CALLS: dict[str, list[FunctionCall]] = {
    "weather": [
        FunctionCall(id="c-1", name="weather", args={"city": "Oslo"}),
        FunctionCall(id="c-2", name="weather", args={"city": "Bergen"}),
        FunctionCall(id="c-3", name="weather", args={"city": "Tromsø", "note": "a long value " * 40}),
    ],
    "broken": [FunctionCall(id="c-4", name="broken", args={"path": "/etc/nothing"})],
    "note": [FunctionCall(id="c-5", name="take_note", args={"text": "Buy milk"})],
    "delete": [FunctionCall(id="c-6", name="delete_rows", args={"table": "orders", "count": 12})],
    "report": [FunctionCall(id="c-7", name="order_report", args={"subject": "sales"})],
    "expert": [FunctionCall(id="c-8", name="expert", args={"request": "deep question"})],
    "billing": [FunctionCall(id="c-9", name="transfer_to_agent", args={"agent_name": "billing"})],
}


def answer(request: LlmRequest) -> Any:
    last = request.contents[-1]
    if any(part.function_response for part in last.parts or ()):
        return "Done: the tools have answered."
    text = last.text()
    for word, calls in _CALLS.items():
        if word in text:
            return [
                call
                if call.id is None
                else FunctionCall(id=f"{call.id}-{len(request.contents)}", name=call.name, args=call.args)
                for call in calls
            ]
    if "boom" in text:
        return ModelError("The model is overloaded", model="scripted")
    if "cut" in text:
        return Fails(error=ModelError("The connection was lost", model="scripted"), after_chunks=4)
    if "think" in text:
        return [Part(text="They want a number. Seven is one.", thought=True), Part(text="Seven.")]
    if "markdown" in text:
        return MARKDOWN
    if "count" in text:
        return " ".join(str(number) for number in range(1, 41))
    return f"You said: {text}"


def desk() -> LlmAgent:
    model = ScriptedModel(answer)
    return LlmAgent(
        name="desk",
        description="A desk that answers, looks things up and asks before it deletes.",
        model=model,
        sub_agents=[LlmAgent(name="billing", description="Invoices.", model=ScriptedModel(lambda _: "Billing here."))],
        tools=[
            weather,
            broken,
            take_note,
            FunctionTool(delete_rows, require_confirmation=True),
            LongRunningFunctionTool(order_report),
            AgentTool(LlmAgent(name="expert", description="Knows.", model=ScriptedModel(lambda _: "Forty-two."))),
        ],
    )


def slow() -> LlmAgent:
    return LlmAgent(name="slow", description="Streams slowly.", model=ScriptedModel(answer, delay=CHUNK_SECONDS))


def team() -> ParallelAgent:
    names = ["north", "east", "south", "west"]
    agents: list[BaseAgent] = [
        LlmAgent(name=name, model=ScriptedModel(_of(name), delay=0.005), tools=[weather]) for name in names
    ]
    return ParallelAgent(name="team", description="Four who look in all directions.", sub_agents=agents)


def _of(name: str) -> Any:
    def say(request: LlmRequest) -> Any:
        if any(part.function_response for content in request.contents for part in content.parts or ()):
            return f"In the {name} the sky is clear, and it stays so until the evening."
        return FunctionCall(id=f"c-{name}", name="weather", args={"city": name.title()})

    return say


def _take(node_input: str) -> str:
    return node_input.strip().title()


def _ask(node_input: str) -> RequestInput:
    return RequestInput(interrupt_id="guests", message=f"How many guests at {node_input}?", response_schema=int)


def _book(node_input: int) -> dict[str, int]:
    return {"guests": node_input}


def flow() -> Workflow:
    return Workflow(name="flow", description="Books a table.", edges=[("START", _take, _ask, _book)])


def _sort(node_input: str) -> Event:
    return Event(output=node_input, route="large" if "large" in node_input else "small")


def _approve(node_input: str) -> RequestInput:
    return RequestInput(interrupt_id="approval", message=f"Allow the order “{node_input}”?", response_schema=bool)


def _decide(node_input: bool) -> Event:
    return Event(output=node_input, route=node_input)


def _ship(node_input: Any) -> str:
    return "The order is shipped."


def _cancel(node_input: Any) -> str:
    return "The order is cancelled."


def orders() -> Workflow:
    after_approval = (_approve, _decide, {True: _ship, False: _cancel})
    return Workflow(
        name="orders",
        description="Ships orders, large ones with an approval.",
        edges=[("START", _sort, {"large": _approve, "small": _ship}), after_approval],
    )


def flaky() -> LlmAgent:
    """Its model fails once for each message."""
    failed = set[str]()

    def answer_later(request: LlmRequest) -> Any:
        text = request.contents[-1].text()
        if text in failed:
            return f"You said: {text}"
        failed.add(text)
        return ModelError("The model is overloaded", model="scripted")

    return LlmAgent(name="flaky", description="Fails first.", model=ScriptedModel(answer_later))


def collector() -> LlmAgent:
    """Sleeps three days for "wait", and waits at most a week for the signal `paid` for any other message."""

    def answer_later(request: LlmRequest) -> Any:
        last = request.contents[-1]
        for part in last.parts or ():
            if part.function_response:
                return f"Awake: {part.function_response.response}"
        if "wait" in last.text():
            return FunctionCall(name="wait", args={"seconds": 3 * 86_400})
        return FunctionCall(name="wait_for", args={"signal": "paid", "timeout_seconds": 7 * 86_400})

    tools = [wait, wait_for]
    return LlmAgent(name="collector", description="Waits for payments.", model=ScriptedModel(answer_later), tools=tools)


def all_apps() -> list[BaseAgent]:
    return [desk(), slow(), team(), flow(), orders(), flaky(), collector()]
