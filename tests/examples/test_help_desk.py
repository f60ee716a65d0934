from __future__ import annotations

from pathlib import Path

import pytest

from greenroom import InMemoryRunner, types
from greenroom.agents.llm_agent import LlmAgent
from greenroom.apps.app import App
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.records.event import Event
from greenroom.testing.scripted_model import ScriptedModel

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def app() -> App:
    return DirectoryAppLoader(EXAMPLES / "help_desk").load("help_desk")


def call(name: str, **args: object) -> types.FunctionCall:
    return types.FunctionCall(name=name, args=args)


def scripted(app: App, script: dict[str, list[object]]) -> ScriptedModel:
    model = ScriptedModel(script)  # pyright: ignore[reportArgumentType]
    for agent in app.root_agent.walk():
        assert isinstance(agent, LlmAgent)
        agent.model = model
    return model


async def ask(runner: InMemoryRunner, session_id: str, text: str) -> list[Event]:
    message = types.Content(role="user", parts=[types.Part.from_text(text=text)])
    return [event async for event in runner.run_async(user_id="ada", session_id=session_id, new_message=message)]


def said(events: list[Event]) -> list[tuple[str, str]]:
    """The texts, calls and responses, with their authors."""
    lines: list[tuple[str, str]] = []
    for event in events:
        for part in (event.content.parts if event.content else None) or []:
            if part.text:
                lines.append((event.author, part.text))
            if part.function_call is not None:
                lines.append((event.author, f"calls {part.function_call.name}"))
            if part.function_response is not None:
                lines.append((event.author, f"gets {part.function_response.response}"))
    return lines


async def test_a_customer_is_handed_to_billing_and_back(app: App) -> None:
    scripted(
        app,
        {
            "front_desk": [
                call("identify_customer", customer_id="c-100"),
                call("transfer_to_agent", agent_name="billing"),
                call("transfer_to_agent", agent_name="technical_support"),
            ],
            "billing": [
                call("list_invoices", customer_id="C-100"),
                call("refund", invoice="R-2", amount=39),
                "You were charged twice in May; 39.00 are on their way back.",
                call("transfer_to_agent", agent_name="front_desk"),
            ],
            "technical_support": [call("check_line", customer_id="C-100"), "Restart the router, please."],
        },
    )
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="help_desk", user_id="ada")

    first = said(await ask(runner, session.id, "I am C-100. Why is my bill for May so high?"))
    assert first == [
        ("front_desk", "calls identify_customer"),
        ("front_desk", "gets {'customer_id': 'C-100', 'name': 'Ada'}"),
        ("front_desk", "calls transfer_to_agent"),
        ("front_desk", first[3][1]),
        ("billing", "calls list_invoices"),
        (
            "billing",
            "gets {'invoices': [{'invoice': 'R-1', 'month': 'April', 'amount': 39.0}, "
            "{'invoice': 'R-2', 'month': 'May', 'amount': 78.0}]}",
        ),
        ("billing", "calls refund"),
        ("billing", "gets {'status': 'refunded', 'invoice': 'R-2', 'amount': 39.0}"),
        ("billing", "You were charged twice in May; 39.00 are on their way back."),
    ]

    second = said(await ask(runner, session.id, "And my internet is slow."))
    assert [line for line in second if not line[1].startswith("gets")] == [
        ("billing", "calls transfer_to_agent"),
        ("front_desk", "calls transfer_to_agent"),
        ("technical_support", "calls check_line"),
        ("technical_support", "Restart the router, please."),
    ]

    stored = await runner.session_service.get_session(app_name="help_desk", user_id="ada", session_id=session.id)
    assert stored is not None
    assert stored.state == {"customer_id": "C-100", "customer_name": "Ada"}


async def test_billing_knows_who_is_asking(app: App) -> None:
    model = scripted(app, {"front_desk": [call("transfer_to_agent", agent_name="billing")], "billing": ["Hello."]})
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(
        app_name="help_desk", user_id="ada", state={"customer_id": "C-200"}
    )
    await ask(runner, session.id, "My bill, please.")
    assert "The customer is C-200." in model.requests[-1].config.system_text()


async def test_a_wrong_number_and_a_wrong_amount_are_reported_to_the_model(app: App) -> None:
    scripted(
        app,
        {
            "front_desk": [
                call("identify_customer", customer_id="C-999"),
                call("transfer_to_agent", agent_name="billing"),
            ],
            "billing": [call("refund", invoice="R-1", amount=1000), "No."],
        },
    )
    runner = InMemoryRunner(app=app)
    session = await runner.session_service.create_session(app_name="help_desk", user_id="ada")
    lines = said(await ask(runner, session.id, "I am C-999, give me 1000."))
    assert ("front_desk", "gets {'error': 'There is no customer C-999.'}") in lines
    assert ("billing", "gets {'error': 'The amount must be between 0 and 39.0.'}") in lines
