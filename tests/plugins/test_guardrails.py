"""Guardrails: what they find, and that nothing of it is left anywhere."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.agents.llm_agent import LlmAgent
from greenroom.agents.workflows import ParallelAgent, SequentialAgent
from greenroom.errors import AgentConfigError, GuardrailBlocked, ToolError
from greenroom.models.model import BaseLlm
from greenroom.plugins.guardrails.allow_lists import AllowedHosts, AllowedTools
from greenroom.plugins.guardrails.check import GuardrailCheck
from greenroom.plugins.guardrails.decisions import GUARDRAILS, GuardrailDecision
from greenroom.plugins.guardrails.patterns import PatternCheck
from greenroom.plugins.guardrails.plugin import GuardrailPlugin
from greenroom.records import wire
from greenroom.records.content import Content, Part
from greenroom.records.human_requests import REQUEST_CONFIRMATION
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import STREAMED, answer, call, lines_of
from tests.plugins.watched import WatchedTalk

CARD = "4111 1111 1111 1111"
OTHER_CARD = "5500-0055-5555-5559"
MAIL = "ada@example.com"
IBAN = "DE89 3704 0044 0532 0130 00"
TOKEN = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


def agent(*script: Any, **more: Any) -> LlmAgent:
    return LlmAgent(name="a", model=ScriptedModel(list(script), loop=True), **more)


def patterns(*names: str, **options: Any) -> list[GuardrailCheck]:
    return [PatternCheck(name, **options) for name in names or ("card_number", "email", "iban", "token")]


def model_of(one: LlmAgent) -> ScriptedModel:
    assert isinstance(one.model, BaseLlm)
    assert isinstance(one.model, ScriptedModel)
    return one.model


async def found(name: str, text: str) -> list[str]:
    check = PatternCheck(name)
    context: Any = None
    return [text[one.start : one.end] for one in await check.find(text, where="user_message", ctx=context)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("card_number", f"pay with {CARD}, or {OTHER_CARD}.", [CARD, OTHER_CARD]),
        ("card_number", "378282246310005 6011111111111117", ["378282246310005", "6011111111111117"]),
        ("card_number", "4111 1111 1111 1112, order 4000 0000 0000 0000 1", []),
        ("card_number", f"4000 {CARD} 5 items", [CARD]),
        ("email", f"write to <{MAIL}>.", [MAIL]),
        ("email", "a@b, @home and 5@once", []),
        ("iban", f"to {IBAN}, or GB82WEST12345698765432", [IBAN, "GB82WEST12345698765432"]),
        ("iban", "DE89 3704 0044 0532 0130 01", []),
        ("token", f"key={TOKEN}; AKIAIOSFODNN7EXAMPLE", [TOKEN, "AKIAIOSFODNN7EXAMPLE"]),
        ("token", "ask-me-anything-about-the-skies and task-sk-1", []),
        (
            "token",
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
            ["-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----"],
        ),
    ],
)
async def test_ready_made_patterns(name: str, text: str, expected: list[str]) -> None:
    assert await found(name, text) == expected


async def test_text_is_redacted_for_model_log_and_client() -> None:
    one = agent(f"I have noted {CARD} and {MAIL}.")
    talk = WatchedTalk(one, GuardrailPlugin(patterns(), on_violation="redact"))
    events = await talk.say(Content(role="user", parts=[Part(text="My card: 4111 1111"), Part(text=" 1111 1111!")]))
    assert lines_of(events) == ["a: I have noted [redacted: card_number] and [redacted: email]."]
    log = await talk.log()
    assert lines_of(log) == [
        "user: My card: [redacted: card_number]",
        "user: !",
        "a: I have noted [redacted: card_number] and [redacted: email].",
    ]
    assert "1111" not in repr(model_of(one).requests)
    noted: Any = (log[-1].custom_metadata or {})[GUARDRAILS]
    assert len({decision.pop("id") for decision in noted}) == 3
    assert noted == [
        {"check": "card_number", "where": "user_message", "action": "redact", "labels": ["card_number"]},
        {"check": "card_number", "where": "model_output", "action": "redact", "labels": ["card_number"]},
        {"check": "email", "where": "model_output", "action": "redact", "labels": ["email"]},
    ]


async def test_a_blocked_message_ends_the_run_before_the_model_is_called() -> None:
    one = agent("ok")
    talk = WatchedTalk(one, GuardrailPlugin(patterns()))
    with pytest.raises(GuardrailBlocked) as raised:
        await talk.say(f"My card: {CARD}")
    assert str(raised.value) == "The guardrail 'card_number' has blocked the user message"
    *_, last = await talk.log()
    assert last.error_code == "GuardrailBlocked"
    assert last.custom_metadata is not None
    assert [decision["action"] for decision in last.custom_metadata[GUARDRAILS]] == ["block"]
    assert not model_of(one).requests
    assert lines_of(await talk.log())[0] == "user: [blocked: card_number]"
    assert CARD not in repr(await talk.log())
    assert lines_of(await talk.say("And now?")) == ["a: ok"]


async def test_a_reply_stands_in_for_what_is_blocked() -> None:
    one = agent(f"It is {MAIL}.")
    talk = WatchedTalk(one, GuardrailPlugin(patterns(), reply="I can't help with that."))
    assert lines_of(await talk.say(f"My card: {CARD}")) == ["model: I can't help with that."]
    assert lines_of(await talk.say("What is your address?")) == ["a: I can't help with that."]
    assert MAIL not in repr(await talk.log())


async def test_a_blocked_answer_ends_a_sequence() -> None:
    second = LlmAgent(name="b", model=ScriptedModel(["never"]))
    talk = WatchedTalk(SequentialAgent(name="both", sub_agents=[agent(f"{CARD}"), second]), GuardrailPlugin(patterns()))
    with pytest.raises(GuardrailBlocked):
        await talk.say("go")
    assert not model_of(second).requests
    assert CARD not in repr(await talk.log())


async def test_streamed_text_is_kept_back_until_it_is_checked() -> None:
    text = f"Your card is {CARD}, your mail {MAIL}, and that is all that I know about you."
    one = LlmAgent(name="a", model=ScriptedModel([text], chunks=3))
    talk = WatchedTalk(one, GuardrailPlugin(patterns("card_number", "email"), on_violation="redact"))
    events = await talk.say("go", run_config=STREAMED)
    partial = [event for event in events if event.partial]
    sent = "".join(event.content.text() for event in partial if event.content)
    whole = "Your card is [redacted: card_number], your mail [redacted: email], and that is all that I know about you."
    assert lines_of(events)[-1] == f"a: {whole}"
    assert whole.startswith(sent)
    assert len(sent) > 60
    assert all(event.content and event.content.parts for event in partial)


async def test_a_pattern_without_a_longest_match_keeps_the_whole_message_back() -> None:
    one = agent("The word is swordfish, and more")
    talk = WatchedTalk(one, GuardrailPlugin([PatternCheck("secret", "swordfish")], on_violation="redact"))
    events = await talk.say("go", run_config=STREAMED)
    assert lines_of(events) == ["a: The word is [redacted: secret], and more"]


def pay(card: str, note: Any = None) -> str:
    """Pays."""
    PAID.append((card, note))
    return f"paid with {card}, receipt to {MAIL}"


PAID: list[Any] = []


async def test_arguments_and_results_of_tools_are_redacted() -> None:
    PAID.clear()
    one = agent(call("pay", "c-1", card=CARD, note={"numbers": [4111111111111111]}), "done", tools=[pay])
    talk = WatchedTalk(one, GuardrailPlugin(patterns(), on_violation="redact"))
    await talk.say("go")
    assert PAID == [("[redacted: card_number]", {"numbers": ["[redacted: card_number]"]})]
    log = await talk.log()
    assert "1111" not in repr(log)
    assert MAIL not in repr(log)
    assert MAIL not in repr(model_of(one).requests)
    assert [len((event.custom_metadata or {}).get(GUARDRAILS, ())) for event in log] == [0, 1, 1, 0]


async def test_a_tool_whose_result_is_blocked_ends_the_run() -> None:
    one = agent(call("pay", "c-1", card="none"), "done", tools=[pay])
    talk = WatchedTalk(one, GuardrailPlugin(patterns("email", where=["tool_results"])))
    with pytest.raises(GuardrailBlocked):
        await talk.say("go")
    log = await talk.log()
    assert log[-1].error_code == "GuardrailBlocked"
    assert MAIL not in repr(log)


def fails() -> str:
    """Fails."""
    raise ToolError(f"no account {MAIL}")


async def test_the_error_of_a_tool_is_redacted() -> None:
    talk = WatchedTalk(
        agent(call("fails", "c-1"), "done", tools=[fails]), GuardrailPlugin(patterns(), on_violation="redact")
    )
    with pytest.raises(ToolError) as raised:
        await talk.say("go")
    assert raised.value.detail == "no account [redacted: email]"
    assert MAIL not in repr(await talk.log())


def fetch(url: str) -> str:
    """Fetches."""
    FETCHED.append(url)
    return "page"


FETCHED: list[str] = []


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        ("https://example.com/a", True),
        ("https://EXAMPLE.com.:8443/a", True),
        ("https://api.example.org/", True),
        ("https://example.org/", False),
        ("https://sub.example.com/", False),
        ("https://example.com@evil.com/", False),
        ("https://evil.com\\@example.com/", False),
        ("https:\\\\evil.com/", False),
        ("//evil.com/x", False),
        ("evil.com/x", False),
        ("example.com/x", True),
        ("file:///etc/passwd", False),
        ("https://evilexample.com", False),
        ("see https://example.com and https://evil.com", False),
        ("https://example.com:port/", False),
        ("https://münchen.de", False),
        ("/local/path", True),
    ],
)
def test_hosts_in_arguments(text: str, is_allowed: bool) -> None:
    check = AllowedHosts(["example.com", "*.example.org"])
    tool: Any = None
    assert (check.refuse_call(tool, {"url": text}) is None) is is_allowed
    assert (check.refuse_call(tool, {"more": [{"url": text}]}) is None) is is_allowed


async def test_a_blocked_call_is_not_made() -> None:
    FETCHED.clear()
    checks = [AllowedTools(["fetch", "read_*"]), AllowedHosts(["example.com"])]
    one = agent(call("fetch", "c-1", url="https://evil.com"), call("pay", "c-2", card="x"), "done", tools=[fetch, pay])
    talk = WatchedTalk(one, GuardrailPlugin(checks, reply="This is not allowed."))
    PAID.clear()
    events = await talk.say("go")
    responses = [response.response for event in events for response in event.get_function_responses()]
    assert responses == [{"error": "This is not allowed."}, {"error": "This is not allowed."}]
    assert (FETCHED, PAID) == ([], [])
    assert lines_of(events)[-1] == "a: done"


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_person_decides_about_a_call(confirmed: bool) -> None:
    FETCHED.clear()
    one = agent(call("fetch", "c-1", url="https://other.com"), "done", tools=[fetch])
    plugin = GuardrailPlugin([AllowedHosts(["example.com"], on_violation="ask")])
    talk = WatchedTalk(one, plugin)
    events = await talk.say("go")
    requests = [one for event in events for one in event.get_function_calls() if one.name == REQUEST_CONFIRMATION]
    assert len(requests) == 1
    assert requests[0].args is not None
    assert requests[0].args["toolConfirmation"]["hint"] == (
        "fetch needs an approval: an argument names a host that is not allowed."
    )
    assert FETCHED == []
    await talk.say(answer(REQUEST_CONFIRMATION, requests[0].id, {"confirmed": confirmed}))
    assert (FETCHED == ["https://other.com"]) is confirmed


@pytest.mark.parametrize("is_text", [False, True])
@pytest.mark.parametrize("action", ["redact", "block"])
async def test_arguments_that_a_person_edits_are_checked(action: Any, *, is_text: bool) -> None:
    FETCHED.clear()
    one = agent(call("fetch", "c-1", url="https://other.com"), "done", tools=[fetch])
    checks = [PatternCheck("email", on_violation=action), AllowedHosts(["example.com"], on_violation="ask")]
    talk = WatchedTalk(one, GuardrailPlugin(checks))
    events = await talk.say("go")
    [request] = [one for event in events for one in event.get_function_calls() if one.name == REQUEST_CONFIRMATION]
    edited: Any = {"confirmed": True, "payload": {"url": f"https://other.com/{MAIL}"}}
    if is_text:
        edited = {"response": wire.encode(edited).decode()}

    if action == "block":
        with pytest.raises(GuardrailBlocked, match="email"):
            await talk.say(answer(REQUEST_CONFIRMATION, request.id, edited))
    else:
        await talk.say(answer(REQUEST_CONFIRMATION, request.id, edited))

    expected = [] if action == "block" else ["https://other.com/[redacted: email]"]
    assert expected == FETCHED
    assert MAIL not in repr(await talk.log())
    assert MAIL not in repr(model_of(one).requests)


async def test_edited_arguments_of_a_host_that_is_blocked_are_refused() -> None:
    FETCHED.clear()
    one = agent(call("fetch", "c-1", url="https://ask.com"), "done", tools=[fetch])
    checks = [
        AllowedHosts(["example.com"], on_violation="ask", name="ask"),
        AllowedHosts(["example.com", "ask.com"], on_violation="block", name="never"),
    ]
    talk = WatchedTalk(one, GuardrailPlugin(checks))
    events = await talk.say("go")
    [request] = [one for event in events for one in event.get_function_calls() if one.name == REQUEST_CONFIRMATION]
    with pytest.raises(GuardrailBlocked, match="never"):
        edited = {"confirmed": True, "payload": {"url": "https://evil.com"}}
        await talk.say(answer(REQUEST_CONFIRMATION, request.id, edited))
    assert FETCHED == []


async def test_a_blocked_branch_ends_a_parallel_run() -> None:
    other = LlmAgent(name="b", model=ScriptedModel(["fine"]))
    talk = WatchedTalk(ParallelAgent(name="both", sub_agents=[agent(CARD), other]), GuardrailPlugin(patterns()))
    with pytest.raises(Exception, match="GuardrailBlocked"):
        await talk.say("go")
    assert CARD not in repr(await talk.log())


async def test_the_hook_gets_each_decision() -> None:
    decisions: list[GuardrailDecision] = []
    plugin = GuardrailPlugin(
        patterns("email"), on_violation="redact", on_decision=lambda one, ctx: decisions.append(one)
    )
    await WatchedTalk(agent("hi"), plugin).say(MAIL)
    [decision] = decisions
    assert decision == GuardrailDecision(
        id=decision.id, check="email", where="user_message", action="redact", labels=["email"]
    )
    assert MAIL not in wire.encode(decisions[0]).decode()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GuardrailPlugin([]), "needs checks"),
        (lambda: GuardrailPlugin(patterns("email"), on_violation="ask"), "tool calls only"),
        (lambda: GuardrailPlugin([AllowedTools([])], on_violation="redact"), "no text to redact"),
        (lambda: PatternCheck("passport"), "no ready-made pattern 'passport'"),
        (lambda: PatternCheck("x", "("), "no regular expression"),
        (lambda: PatternCheck("x", "a*"), "matches an empty text"),
        (lambda: AllowedTools(["a"], on_violation="ask", name="t") and PatternCheck("email", where=[]), "nothing"),
        (lambda: AllowedHosts("example.com"), "takes a list"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(AgentConfigError, match=message):
        make()
