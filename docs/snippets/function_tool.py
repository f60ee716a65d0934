from typing import Annotated, Literal

from pydantic import BaseModel, Field

from greenroom import LlmAgent, ToolContext


class Guest(BaseModel):
    name: str
    seats: int = 1


def book_table(
    guest: Guest,
    day: Annotated[str, Field(description="As in 2026-05-01")],
    tool_context: ToolContext,
    room: Literal["garden", "hall"] = "hall",
) -> dict[str, str | int]:
    """Books a table.

    Args:
        guest: Who comes.
        room: Where to sit.
    """
    tool_context.state["last_guest"] = guest.name
    return {"guest": guest.name, "seats": guest.seats, "day": day, "room": room}


host = LlmAgent(name="host", instruction="You take bookings.", tools=[book_table])
