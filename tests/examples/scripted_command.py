"""The command `greenroom` with a scripted model: `python -m tests.examples.scripted_command SCRIPT …`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from examples.weather.agent import CITIES
from greenroom.cli.main import main
from greenroom.records.model_exchange import LlmRequest
from greenroom.testing.scripted_model import ScriptedModel
from tests.agents.talk import call
from tests.examples.gallery import in_place_of_models


def _hotel(request: LlmRequest) -> Any:
    responses = [p.function_response for p in request.contents[-1].parts or () if p.function_response]
    if not responses:
        return call("list_rooms")
    answer = responses[0].response or {}
    if responses[0].name == "list_rooms":
        return call("book_room", kind="double", nights=2, guest="Ada")
    return f"A double room for two nights is booked for Ada: {answer['price']} euros, reference {answer['reference']}."


def _weather(request: LlmRequest) -> Any:
    """Understands each question."""
    last = request.contents[-1]
    if any(part.function_response for part in last.parts or ()):
        return "Here you are."
    question = last.text()
    tool = "get_current_time" if "time" in question else "get_weather"
    city = next(name for name in CITIES if name in question)
    if tool not in {declaration.name for declaration in request.function_declarations()}:
        return "I can't look that up."
    return call(tool, city=city)


SCRIPTS: dict[str, Sequence[Any] | Callable[[LlmRequest], Any]] = {
    "hotel": _hotel,
    "travel": [
        call("hotel", request="Please book a double room for two nights, for Ada."),
        "Your double room at Hotel Aurora is booked for two nights: 280 euros.",
    ],
    "weather": _weather,
}


if __name__ == "__main__":
    script = SCRIPTS[sys.argv.pop(1)]
    with in_place_of_models(ScriptedModel(script)):
        main()
