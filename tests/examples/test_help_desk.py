"""The help desk: hand-overs, and a refund that waits for a person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from greenroom.records.content import FunctionCall
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.examples.gallery import check_transcript, converse, responses, served, transcript


def transfer(name: str) -> FunctionCall:
    return call("transfer_to_agent", agent_name=name)


def refunding_model() -> ScriptedModel:
    script: dict[str, list[Any]] = {
        "front_desk": [call("identify_customer", customer_id="c-100"), transfer("billing")],
        "billing": [
            call("list_invoices", customer_id="C-100"),
            call("refund", invoice="R-2", amount=60),
            "60 euros are on their way back to you, Ada.",
        ],
    }
    return ScriptedModel(script)


QUESTION = "I am C-100. I paid twice in May, please refund it."


async def test_a_large_refund_waits_for_a_person_through_a_restart(tmp_path: Path) -> None:
    model = refunding_model()
    async with served("help_desk", model, tmp_path) as server:
        events = await converse(server, "help_desk", QUESTION)
        assert "refunded" not in transcript(events)

    async with served("help_desk", model, tmp_path) as server:
        (request,) = (await server.client.get("/requests")).json()["requests"]
        assert (request["tool"], request["arguments"]) == ("refund", {"invoice": "R-2", "amount": 60})
        answered = await server.client.post(f"/requests/{request['id']}/answer", json={"confirmed": True})
        await server.wait_for_status(answered.json()["run"]["id"], "succeeded")
        events = await converse(server, "help_desk")

    refunded = responses(events)[-1]
    assert {**refunded, "reference": ""} == {"status": "refunded", "invoice": "R-2", "amount": 60, "reference": ""}
    check_transcript("help_desk", transcript(events))


async def test_a_refused_refund_is_not_paid(tmp_path: Path) -> None:
    async with served("help_desk", refunding_model(), tmp_path) as server:
        events = await converse(server, "help_desk", QUESTION, {"approve": False})
    assert responses(events)[-1] == {"error": "A person refused this call; it was not made."}


@pytest.mark.parametrize(
    ("invoice", "amount", "answer"),
    [
        ("r-1", 20, {"status": "refunded", "invoice": "R-1", "amount": 20}),
        ("R-1", 0, {"error": "The amount must be between 0 and 60.0."}),
        ("R-9", 5, {"error": "There is no invoice R-9."}),
    ],
)
async def test_a_small_refund_is_paid_at_once_and_a_wrong_one_is_reported(
    tmp_path: Path, invoice: str, amount: float, answer: dict[str, object]
) -> None:
    script: dict[str, list[Any]] = {
        "front_desk": [transfer("billing")],
        "billing": [call("refund", invoice=invoice, amount=amount), "I have looked into it."],
    }
    async with served("help_desk", ScriptedModel(script), tmp_path) as server:
        events = await converse(server, "help_desk", "Some money back, please.")
    found = responses(events)[-1]
    assert {key: value for key, value in found.items() if key != "reference"} == answer


async def test_the_customer_is_known_to_the_next_agents_and_handed_on(tmp_path: Path) -> None:
    script: dict[str, list[Any]] = {
        "front_desk": [
            call("identify_customer", customer_id="C-999"),
            call("identify_customer", customer_id="c-200"),
            transfer("billing"),
            transfer("technical_support"),
        ],
        "billing": ["There is nothing unusual.", transfer("front_desk")],
        "technical_support": [call("check_line", customer_id="C-200"), "A technician will come."],
    }
    model = ScriptedModel(script)
    async with served("help_desk", model, tmp_path) as server:
        events = await converse(server, "help_desk", "I am C-200. Is my bill right?", "And my internet is down.")
        session = (await server.client.get("/apps/help_desk/users/user/sessions/s-1")).json()
    assert session["state"] == {"customer_id": "C-200", "customer_name": "Grace"}
    assert {"error": "There is no customer C-999."} in responses(events)
    assert responses(events)[-1]["line"] == "down"
    assert "The customer is C-200." in model.requests[-1].config.system_text()
    assert events[-1]["author"] == "technical_support"
