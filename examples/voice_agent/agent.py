"""A dentist's telephone: callers speak with it, may interrupt it, and leave with an appointment.

Try it with the button "Talk" in the dev UI, or over the WebSocket `/run_live`. It needs a model that hears and speaks,
and its key: `GREENROOM_LIVE_MODEL` names one, such as `gpt-realtime`.
"""

from __future__ import annotations

import os

from greenroom import LlmAgent, ToolContext

MODEL = os.environ.get("GREENROOM_LIVE_MODEL") or "gemini-live-2.5-flash-native-audio"

FREE = {"monday": ["9:00", "10:30"], "tuesday": ["14:00"], "thursday": ["8:30", "16:00"]}


def free_appointments(day: str) -> dict[str, object]:
    """Lists the free appointments of a day.

    Args:
        day: Day of the week.
    """
    return {"day": day, "free": FREE.get(day.lower(), []), "other_days": [other for other in FREE if FREE[other]]}


def book(day: str, time: str, name: str, tool_context: ToolContext) -> dict[str, str]:
    """Books an appointment.

    Args:
        day: Day of the week.
        time: One of the free times.
        name: The caller's name.
    """
    times = FREE.get(day.lower(), [])
    if time not in times:
        return {"error": f"{day} {time} is not free. Free are: {', '.join(times) or 'none'}."}
    times.remove(time)
    tool_context.state["appointment"] = f"{day} {time}"
    return {"status": "booked", "day": day, "time": time, "name": name}


root_agent = LlmAgent(
    name="dentist",
    model=MODEL,
    description="Answers a dentist's telephone.",
    instruction="You answer the telephone of a dentist. Find out what the caller wants, offer two free appointments at "
    "most, and book the one that they choose under their name. Speak in short sentences. If they are in pain, offer "
    "the next free appointment at once.",
    tools=[free_appointments, book],
)
