"""The functions that the guide shows as tools."""

from __future__ import annotations

from typing import Any

from greenroom.invocation.user_context import ToolContext


def get_weather(city: str, unit: str = "celsius") -> dict[str, Any]:
    """Current weather of a city.

    Args:
        city: Name of the city.
        unit: "celsius" or "fahrenheit".
    """
    return {"city": city, "temp": 18, "unit": unit}


def remember_city(city: str, tool_context: ToolContext) -> str:
    """Remembers the user's home city."""
    tool_context.state["user:home"] = city
    return "noted"
