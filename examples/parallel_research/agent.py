"""A research team: three researchers work side by side, then a writer makes one report of what they found.

The researchers read a small made-up library, so everything works offline. `GREENROOM_MODEL` names another model.
"""

from __future__ import annotations

import os

from greenroom import LlmAgent, ParallelAgent, SequentialAgent, ToolContext

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

NEWS = {
    "heat pumps": "Sales of heat pumps grew by 12% last year; installers are booked out until autumn.",
    "wind power": "Two new wind farms went into service off the coast in March.",
}
STUDIES = {
    "heat pumps": "In 412 houses a heat pump used 3.1 times less energy than the gas boiler before it.",
    "wind power": "A turbine of 2024 yields 40% more than one of 2010 at the same place.",
}
PRICES = {
    "heat pumps": {"item": "air heat pump, 8 kW", "price": 9800, "change_percent": -6},
    "wind power": {"item": "kilowatt-hour at auction", "price": 0.061, "change_percent": -3},
}


def _named(shelf: dict[str, str], topic: str) -> str | None:
    return next((text for name, text in shelf.items() if name in topic.lower() or topic.lower() in name), None)


def _found(tool_context: ToolContext, source: str, text: str | None) -> dict[str, str]:
    if not text:
        return {"error": f"Nothing found. Topics are: {', '.join(NEWS)}."}
    tool_context.state["sources"] = [source]
    return {"found": text}


def read_news(topic: str, tool_context: ToolContext) -> dict[str, str]:
    """Finds what the papers wrote about a topic.

    Args:
        topic: What to look for, like heat pumps.
    """
    return _found(tool_context, "newspaper", _named(NEWS, topic))


def read_studies(topic: str, tool_context: ToolContext) -> dict[str, str]:
    """Finds what scientists measured about a topic.

    Args:
        topic: What to look for, like heat pumps.
    """
    return _found(tool_context, "study", _named(STUDIES, topic))


def look_up_prices(topic: str, tool_context: ToolContext) -> dict[str, str]:
    """Finds what something costs, and how much that changed in a year.

    Args:
        topic: What to look for, like heat pumps.
    """
    prices = {name: f"{one['item']}: {one['price']} EUR ({one['change_percent']}%)" for name, one in PRICES.items()}
    return _found(tool_context, "price list", _named(prices, topic))


def researcher(name: str, description: str, tool: object) -> LlmAgent:
    return LlmAgent(
        name=name,
        model=MODEL,
        description=description,
        instruction=f"{description} Use your tool once, then sum up what it found in one sentence.",
        tools=[tool],  # pyright: ignore[reportArgumentType]
        output_key=name,
    )


researchers = ParallelAgent(
    name="researchers",
    description="Look at a topic from three sides at the same time.",
    sub_agents=[
        researcher("journalist", "You research what is new about a topic.", read_news),
        researcher("scientist", "You research what was measured about a topic.", read_studies),
        researcher("economist", "You research what a topic costs.", look_up_prices),
    ],
    state_reducers={"sources": "append"},  # each of them writes its own
)

writer = LlmAgent(
    name="writer",
    model=MODEL,
    description="Makes one report of what the researchers found.",
    instruction="Write a report of three sentences for the user's question out of these notes, and nothing else.\n"
    "News: {journalist?}\nStudies: {scientist?}\nPrices: {economist?}\nSources: {sources?}",
    output_key="report",
)

root_agent = SequentialAgent(
    name="research",
    description="Researches a topic and reports on it.",
    sub_agents=[researchers, writer],
)
