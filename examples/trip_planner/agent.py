"""A planner who asks two other agents as if they were functions, and answers by itself.

Each of them sees only what the planner asks, and the user hears only the planner. `GREENROOM_MODEL` names another
model.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from greenroom import AgentTool, LlmAgent

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

SIGHTS = {"oslo": ["Opera House", "Vigeland Park"], "lisbon": ["Alfama", "Belém Tower"]}
HOTELS = {"oslo": 140, "lisbon": 95}


@dataclass
class Budget:
    """per_night: of a hotel, in euros. total: with meals."""

    per_night: int
    total: int


def list_sights(city: str) -> list[str]:
    """Names the sights of a city."""
    return SIGHTS.get(city.lower(), [])


def hotel_price(city: str) -> dict[str, int]:
    """Says what a night in a hotel of a city costs, in euros."""
    price = HOTELS.get(city.lower())
    return {"per_night": price} if price is not None else {}


guide = LlmAgent(
    name="guide",
    model=MODEL,
    description="Knows what to see in a city.",
    instruction="Look up the sights of the city that you are asked about, and recommend them in one sentence.",
    tools=[list_sights],
)

accountant = LlmAgent(
    name="accountant",
    model=MODEL,
    description="Works out what a trip costs. Say the city and the number of nights.",
    instruction="Look up the price of a hotel. Add 50 euros for meals for each night.",
    tools=[hotel_price],
    output_schema=Budget,
)

root_agent = LlmAgent(
    name="planner",
    model=MODEL,
    description="Plans short trips.",
    instruction="You plan short trips. Ask the guide what to see and the accountant what it costs, then write a plan.",
    tools=[AgentTool(guide), AgentTool(accountant)],
    output_key="plan",
)
