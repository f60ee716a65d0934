"""A travel agency whose agent asks the agent of a hotel, which runs on another server and could be anybody's: the two
speak the A2A protocol. Start the hotel as its file says, then this one:

    greenroom serve examples/a2a_pair/travel

Try: "A double room in Oslo for two nights, for Ada." `HOTEL_URL` names another server of the hotel.
"""

from __future__ import annotations

import os

from greenroom import AgentTool, LlmAgent, RemoteA2aAgent

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"
HOTEL = os.environ.get("HOTEL_URL") or "http://127.0.0.1:8001"

hotel = RemoteA2aAgent(
    "hotel",
    f"{HOTEL}/a2a/hotel/.well-known/agent-card.json",
    description="Hotel Aurora in Oslo: says which rooms are free and what they cost, and books them.",
)

root_agent = LlmAgent(
    name="travel",
    model=MODEL,
    description="Plans trips and books hotels.",
    instruction="You plan trips to Oslo. Ask the hotel for rooms and prices, and have it book the room once the "
    "traveller has said what they want. Tell them the price and the hotel's reference.",
    tools=[AgentTool(hotel)],
)
