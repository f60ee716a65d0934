"""Clients that keep the conversation themselves: what they send of it, and what the model is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from greenroom import FunctionTool, RequestInput, Workflow
from greenroom.records.content import FunctionCall
from greenroom.records.model_exchange import LlmRequest
from tests.server.agents import scripted
from tests.server.conftest import Serve
from tests.server.serving import Serving

LOCATE = {"name": "locate", "description": "Where?", "parameters": {"type": "object", "properties": {}}}
Message = dict[str, Any]


def shown(request: LlmRequest) -> str:
    """The prompt in one line."""
    said: list[str] = []
    for content in request.contents:
        for part in content.parts or ():
            if part.function_call is not None:
                said.append(f"{part.function_call.name}()")
            elif part.function_response is not None:
                said.append(f"{part.function_response.name}={json.dumps(part.function_response.response)}")
            else:
                said.append(part.text or "?")
    return " | ".join(said)


def asks_client(request: LlmRequest) -> Any:
    asked = request.contents[-1].text()
    if asked == "Where?":
        return FunctionCall(name="locate", args={})
    if asked == "Where twice?":
        return [FunctionCall(name="locate", args={}), FunctionCall(name="locate", args={})]
    if asked == "Fail":
        return ValueError("no")
    return shown(request)


async def start(serve: Serve, agent: Any = None, **more: Any) -> Serving:
    return await serve(agent or scripted("echo", asks_client), gates=("ag_ui", "openai"), **more)


# the protocols' words


class AgUi:
    """An AG-UI client that keeps the messages. thread: with another one, the server knows nothing of them."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.messages = list[Message]()
        self.runs = 0
        self.thread = "t"

    def call(self, call_id: str, name: str = "locate") -> Message:
        return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}

    def calls(self, *ids: str, name: str = "locate") -> None:
        self.messages.append({"id": "a", "role": "assistant", "toolCalls": [self.call(one, name) for one in ids]})

    def says(self, text: str) -> None:
        self.messages.append({"id": f"m-{len(self.messages)}", "role": "user", "content": text})

    def gives(self, call_id: str, result: str) -> None:
        number = len(self.messages)
        self.messages.append({"id": f"m-{number}", "role": "tool", "toolCallId": call_id, "content": result})

    async def send(self, *, tools: bool = True, **more: Any) -> tuple[int, str, list[str]]:
        """The status, the answer, and the ids of its calls; the answer is added to the messages."""
        self.runs += 1
        body = {"threadId": self.thread, "runId": f"{self.thread}-{self.runs}", "messages": self.messages, **more}
        reply = await self.server.client.post("/ag-ui/echo", json={**body, "tools": [LOCATE] if tools else []})
        if reply.status_code != 200:
            return reply.status_code, "", []
        lines = (line for line in reply.text.split("\n") if line.startswith("data: {"))
        events = [json.loads(line.removeprefix("data: ")) for line in lines]
        self.events = events
        text = "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT")
        calls = [event["toolCallId"] for event in events if event["type"] == "TOOL_CALL_START"]
        if calls:
            self.calls(*calls)
        elif text:
            self.messages.append({"id": f"a-{self.runs}", "role": "assistant", "content": text})
        return 200, text, calls


class Chat:
    """A client of Chat Completions."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.messages = list[Message]()

    def calls(self, *ids: str, name: str = "locate") -> None:
        calls = [{"id": one, "type": "function", "function": {"name": name, "arguments": "{}"}} for one in ids]
        self.messages.append({"role": "assistant", "content": None, "tool_calls": calls})

    def says(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def gives(self, call_id: str, result: str) -> None:
        self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})

    async def send(self, *, tools: bool = True) -> tuple[int, str, list[str]]:
        declared = [{"type": "function", "function": LOCATE}] if tools else []
        body = {"model": "echo", "messages": self.messages, "tools": declared}
        reply = await self.server.client.post("/v1/chat/completions", json=body)
        if reply.status_code != 200:
            return reply.status_code, "", []
        message = reply.json()["choices"][0]["message"]
        self.messages.append(message)
        return 200, message["content"] or "", [call["id"] for call in message.get("tool_calls", ())]


class Responses:
    """A client of Responses that sends all items each time."""

    def __init__(self, server: Serving) -> None:
        self.server = server
        self.items = list[Message]()
        self.previous = dict[str, str]()

    def calls(self, *ids: str, name: str = "locate") -> None:
        self.items += [{"type": "function_call", "call_id": one, "name": name, "arguments": "{}"} for one in ids]

    def says(self, text: str) -> None:
        self.items.append({"role": "user", "content": text})

    def gives(self, call_id: str, result: str) -> None:
        self.items.append({"type": "function_call_output", "call_id": call_id, "output": result})

    async def send(self, *, tools: bool = True) -> tuple[int, str, list[str]]:
        declared = [{"type": "function", **LOCATE}] if tools else []
        body = {"model": "echo", "input": self.items, "tools": declared, **self.previous}
        reply = await self.server.client.post("/v1/responses", json=body)
        if reply.status_code != 200:
            return reply.status_code, "", []
        response = reply.json()
        self.items += response["output"]
        self.last_id = response["id"]
        texts = [part["text"] for item in response["output"] for part in item.get("content", ())]
        return 200, "".join(texts), [item["call_id"] for item in response["output"] if "call_id" in item]


class StoredResponses(Responses):
    """A client of Responses that sends what is new."""

    async def send(self, *, tools: bool = True) -> tuple[int, str, list[str]]:
        made = await super().send(tools=tools)
        self.items = []
        self.previous = {"previous_response_id": self.last_id}
        return made


Client = AgUi | Chat | Responses
ALL = pytest.mark.parametrize("kind", [AgUi, Chat, Responses, StoredResponses])
STATELESS = pytest.mark.parametrize("kind", [AgUi, Chat, Responses])


# results and words


@ALL
async def test_a_result_and_words_are_one_run(serve: Serve, kind: type[Client]) -> None:
    server = await start(serve)
    client = kind(server)
    client.says("Where?")
    _, _, [call_id] = await client.send()
    client.gives(call_id, '{"city": "Oslo"}')
    client.says("And how is it?")
    status, text, calls = await client.send()
    assert (status, text, calls) == (200, 'Where? | locate() | locate={"city": "Oslo"} | And how is it?', [])
    client.says("Thanks")
    _, text, _ = await client.send()
    answer = 'Where? | locate() | locate={"city": "Oslo"} | And how is it?'
    assert text == f"{answer} | {answer} | Thanks"


@ALL
async def test_two_results_with_words_between_come_before_the_words(serve: Serve, kind: type[Client]) -> None:
    client = kind(await start(serve))
    client.says("Where twice?")
    _, _, [first, second] = await client.send()
    client.gives(second, '"Bergen"')
    client.says("Well?")
    client.gives(first, "Oslo")
    status, text, _ = await client.send()
    results = 'locate={"result": "Oslo"} | locate={"result": "\\"Bergen\\""}'
    assert (status, text) == (200, f"Where twice? | locate() | locate() | {results} | Well?")


@ALL
async def test_one_result_of_two_and_words(serve: Serve, kind: type[Client]) -> None:
    client = kind(await start(serve))
    client.says("Where twice?")
    _, _, [first, _] = await client.send()
    client.gives(first, "Oslo")
    client.says("Well?")
    status, text, _ = await client.send()
    results = 'locate={"result": "Oslo"} | locate={"status": "pending"}'
    assert (status, text) == (200, f"Where twice? | locate() | locate() | {results} | Well?")


@ALL
async def test_words_without_the_result_leave_the_call_open(serve: Serve, kind: type[Client]) -> None:
    client = kind(await start(serve))
    client.says("Where?")
    await client.send()
    client.says("Never mind")
    status, text, _ = await client.send()
    assert (status, text) == (200, 'Where? | locate() | locate={"status": "pending"} | Never mind')


@ALL
async def test_a_result_of_an_unknown_call_is_refused(serve: Serve, kind: type[Client]) -> None:
    client = kind(await start(serve))
    client.says("Where?")
    _, _, [call_id] = await client.send()
    client.gives(f"{call_id}x", "Oslo")
    client.says("Well?")
    assert (await client.send())[0] == 422


# conversations that the server has not seen


@STATELESS
@pytest.mark.parametrize("words", [(), ("Well?",)])
async def test_a_new_session_begins_in_the_middle(serve: Serve, kind: type[Client], words: tuple[str, ...]) -> None:
    client = kind(await start(serve))
    client.says("Where?")
    client.calls("c-1")
    client.gives("c-1", "Oslo")
    for text in words:
        client.says(text)
    expected = " | ".join(['Where? | locate() | locate={"result": "Oslo"}', *words])
    assert await client.send() == (200, expected, [])


@STATELESS
@pytest.mark.parametrize("words", [(), ("Well?",)])
async def test_results_of_the_agents_own_functions_are_history(
    serve: Serve, kind: type[Client], words: tuple[str, ...]
) -> None:
    client = kind(await start(serve))
    client.says("Where?")
    client.calls("c-1", "c-2")
    client.gives("c-1", "Oslo")
    client.gives("c-2", "Bergen")
    for text in words:
        client.says(text)
    results = 'locate={"result": "Oslo"} | locate={"result": "Bergen"}'
    expected = " | ".join([f"Where? | locate() | locate() | {results}", *words])
    assert await client.send(tools=False) == (200, expected, [])


@STATELESS
async def test_a_result_of_a_call_that_the_history_lacks_is_refused(serve: Serve, kind: type[Client]) -> None:
    server = await start(serve)
    client = kind(server)
    client.says("Where?")
    client.calls("c-1")
    client.gives("c-2", "Oslo")
    assert (await client.send())[0] == 422
    assert (await server.client.get("/runs")).json()["runs"] == []


@STATELESS
async def test_an_approval_of_an_unseen_conversation_is_refused(serve: Serve, kind: type[Client]) -> None:
    client = kind(await start(serve))
    client.says("Pay")
    client.calls("c-1", name="adk_request_confirmation")
    client.gives("c-1", '{"confirmed": true}')
    client.says("Do it")
    assert (await client.send(tools=False))[0] == 409


# approvals


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize("kind", [AgUi, Chat, StoredResponses])
async def test_an_approval_comes_with_words(serve: Serve, kind: type[Client], is_confirmed: bool) -> None:
    paid: list[int] = []

    async def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    def pays(request: LlmRequest) -> Any:
        is_new = len(request.contents) == 1
        return FunctionCall(name="pay", args={"amount": 3}) if is_new else shown(request)

    agent = scripted("echo", pays, tools=[FunctionTool(pay, require_confirmation=True)])
    client = kind(await start(serve, agent))
    client.says("Pay")
    _, _, calls = await client.send()
    client.says("And hurry")

    if isinstance(client, AgUi):
        [interrupt] = client.events[-1]["outcome"]["interrupts"]
        resume = {"interruptId": interrupt["id"], "status": "resolved", "payload": is_confirmed}
        status, text, _ = await client.send(resume=[resume])
    else:
        client.messages.pop() if isinstance(client, Chat) else client.items.pop()
        client.gives(calls[0], json.dumps({"confirmed": is_confirmed}))
        client.says("And hurry")
        status, text, _ = await client.send()

    assert status == 200
    assert paid == ([3] if is_confirmed else [])
    before = text.split(" | ", 1)[0]
    pay_result = text.split("pay=")[1].split(" | ")[0]
    words = text.split(" | ")[-1]
    assert (before, words) == ("Pay", "And hurry")
    assert pay_result == ('{"result": "paid"}' if is_confirmed else pay_result)


# AG-UI alone


async def test_the_words_before_an_interrupt_are_not_repeated(serve: Serve) -> None:
    async def ask(node_input: str):
        yield RequestInput(interrupt_id="city", message="Which city?")

    async def show(node_input: Any) -> str:
        return f"shown {node_input}"

    flow = Workflow(name="echo", edges=[("START", ask), (ask, show)])
    server = await start(serve, flow)
    client = AgUi(server)
    client.says("Show me")
    await client.send()
    [interrupt] = client.events[-1]["outcome"]["interrupts"]
    status, *_ = await client.send(resume=[{"interruptId": interrupt["id"], "status": "resolved", "payload": "Oslo"}])
    assert status == 200
    assert client.events[-1]["outcome"] == {"type": "success"}
    session = (await server.client.get("/apps/echo/users/anonymous/sessions/t")).json()
    parts = [part for event in session["events"] if event["author"] == "user" for part in event["content"]["parts"]]
    assert [part.get("text", "response") for part in parts] == ["Show me", "response"]


async def test_the_message_of_a_failed_run_is_not_repeated(serve: Serve) -> None:
    client = AgUi(await start(serve))
    client.says("Fail")
    await client.send()
    assert client.events[-1]["type"] == "RUN_ERROR"
    client.says("Go on")
    assert (await client.send())[1] == "Fail | Go on"


async def test_a_failed_message_may_be_sent_again(serve: Serve) -> None:
    agent = scripted("echo", [ValueError("no"), shown])
    client = AgUi(await start(serve, agent))
    client.says("Try")
    await client.send()
    assert (await client.send())[:2] == (200, "Try | Try")


async def test_a_result_that_was_given_before_is_not_given_again(serve: Serve) -> None:
    replies = [FunctionCall(name="locate", args={}), ValueError("no"), shown]
    server = await start(serve, scripted("echo", replies))
    client = AgUi(server)
    client.says("Where?")
    _, _, [call_id] = await client.send()
    client.gives(call_id, "Oslo")
    await client.send()
    assert client.events[-1]["type"] == "RUN_ERROR"
    client.says("Go on")
    _, text, _ = await client.send()
    assert text == 'Where? | locate() | locate={"result": "Oslo"} | Go on'
    session = (await server.client.get("/apps/echo/users/anonymous/sessions/t")).json()
    by_user = [event["content"]["parts"] for event in session["events"] if event["author"] == "user"]
    assert [list(part) for parts in by_user for part in parts] == [["text"], ["functionResponse"], ["text"]]


async def test_context_comes_after_results_and_before_words(serve: Serve) -> None:
    client = AgUi(await start(serve))
    context = [{"description": "Page", "value": "home"}]
    client.says("Where?")
    _, _, calls = await client.send()
    client.gives(calls[0], "Oslo")
    _, text, _ = await client.send(context=context)
    assert text.endswith('locate={"result": "Oslo"} | Context from the application:\n- Page: home')
    client.says("Thanks")
    _, text, _ = await client.send(context=context)
    assert text.endswith(" | Context from the application:\n- Page: home | Thanks")


async def test_what_a_thread_has_is_not_sent_to_the_model_twice(serve: Serve) -> None:
    """The same history on a thread that is known, and on one that is new, makes the same prompt."""
    client = AgUi(await start(serve))
    client.says("Where?")
    _, _, [call_id] = await client.send()
    client.gives(call_id, "Oslo")
    client.says("Well?")
    history = list(client.messages)
    known = await client.send()
    client.thread = "new"
    client.messages = history
    assert await client.send() == known


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"mimeType": "text/plain", "data": "SGk=", "filename": "a.txt"}, ("text/plain", b"Hi", None, "a.txt")),
        ({"mimeType": "image/png", "url": "https://a.example/b"}, ("image/png", None, "https://a.example/b", None)),
        ({"mimeType": "image/png", "id": "files/7"}, ("image/png", None, "files/7", None)),
    ],
)
async def test_a_binary_part_of_older_clients(serve: Serve, part: Message, expected: tuple[Any, ...]) -> None:
    found: list[tuple[Any, ...]] = []

    def look(request: LlmRequest) -> str:
        [text, file] = request.contents[-1].parts or []
        assert text.text == "Look"
        data = file.inline_data or file.file_data
        assert data is not None
        content = getattr(data, "data", None)
        uri = getattr(data, "file_uri", None)
        found.append((data.mime_type, content, uri, data.display_name))
        return "seen"

    client = AgUi(await start(serve, scripted("echo", look)))
    parts = [{"type": "text", "text": "Look"}, {"type": "binary", **part}]
    client.messages.append({"id": "1", "role": "user", "content": parts})
    assert await client.send() == (200, "seen", [])
    assert found == [expected]


async def test_a_binary_part_without_content_is_refused(serve: Serve) -> None:
    client = AgUi(await start(serve))
    client.messages.append({"id": "1", "role": "user", "content": [{"type": "binary", "mimeType": "image/png"}]})
    assert (await client.send())[0] == 422
