"""A hotel whose agent serves other companies' agents. Start it first, with its own server:

greenroom serve examples/a2a_pair/hotel --port 8001 --a2a
"""

from __future__ import annotations

import os

from greenroom import LlmAgent, ToolContext

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

ROOMS = {"single": {"price": 95, "free": 3}, "double": {"price": 140, "free": 1}}


def list_rooms() -> dict[str, dict[str, int]]:
    """Lists the kinds of rooms with their price for a night, in euros, and how many are free."""
    return ROOMS


def book_room(kind: str, nights: int, guest: str, tool_context: ToolContext) -> dict[str, object]:
    """Books a room.

    Args:
        kind: single or double.
        nights: How many nights.
        guest: Name of the guest.
    """
    room = ROOMS.get(kind)
    if room is None or not room["free"]:
        return {"error": f"No {kind} room is free."}
    room["free"] -= 1
    reference = f"H-{tool_context.idempotency_key[:8]}"
    return {"reference": reference, "guest": guest, "kind": kind, "price": room["price"] * nights}


root_agent = LlmAgent(
    name="hotel",
    model=MODEL,
    description="Hotel Aurora in Oslo: says which rooms are free and what they cost, and books them.",
    instruction="You take bookings for Hotel Aurora in Oslo. Look at the rooms before you answer. Book only when kind, "
    "nights and the guest's name are known; else ask for what is missing. Answer with the price and the reference.",
    tools=[list_rooms, book_room],
)
