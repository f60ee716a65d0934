"""An agent of Pydantic AI that books rooms: a person approves each booking, and the session's state keeps it.

The agent is the framework's own; `PydanticAiAgent` hosts it, and its dependencies are the context of the turn. The
approval may come after a restart. `GREENROOM_MODEL` names another model; the small local one seldom calls a tool.
"""

import os

from pydantic_ai import Agent, ModelRetry, RunContext

from greenroom import CallbackContext, GreenroomModel, PydanticAiAgent

MODEL = os.environ.get("GREENROOM_MODEL") or "local/smollm2-135m"

ROOMS = {"garden": 4, "library": 12, "hall": 40}

agent = Agent(
    GreenroomModel(MODEL),
    deps_type=CallbackContext,
    instructions="You book rooms. Find one that is large enough, then book it for the day that the guest names.",
)


@agent.tool_plain
def find_rooms(guests: int) -> list[str]:
    """The rooms for that many guests, the smallest first."""
    return [room for room, places in ROOMS.items() if places >= guests]


@agent.tool(requires_approval=True)
def book(ctx: RunContext[CallbackContext], room: str, day: str) -> str:
    """Books a room.

    Args:
        room: A name that find_rooms returned.
        day: As in 2026-05-01.
    """
    if room not in ROOMS:
        raise ModelRetry(f"There is no room {room!r}; the rooms are {', '.join(ROOMS)}")

    state = ctx.deps.state
    state["bookings"] = [*state.get("bookings", []), {"room": room, "day": day}]
    return f"The {room} is booked for {day}."


def dependencies(context: CallbackContext) -> CallbackContext:
    return context


root_agent = PydanticAiAgent(name="booking_desk", agent=agent, deps=dependencies)
