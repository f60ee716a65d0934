"""Weather and local time of some cities. The times are real; the weather is a table.

Beside the agent is its evaluation suite: questions with the calls that they must lead to, and the thresholds of its
metrics. It fails when the agent no longer looks things up:

    greenroom eval examples/weather questions --config-file-path examples/weather/thresholds.json --fail-under 0.8
"""

import os
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from greenroom import LlmAgent

CITIES = {
    "Amsterdam": ("Europe/Amsterdam", 12, "drizzle"),
    "Berlin": ("Europe/Berlin", 9, "overcast"),
    "Cairo": ("Africa/Cairo", 31, "clear"),
    "Cape Town": ("Africa/Johannesburg", 22, "windy"),
    "London": ("Europe/London", 11, "light rain"),
    "Madrid": ("Europe/Madrid", 24, "sunny"),
    "Mexico City": ("America/Mexico_City", 21, "partly cloudy"),
    "Mumbai": ("Asia/Kolkata", 30, "humid and hazy"),
    "Nairobi": ("Africa/Nairobi", 23, "sunny"),
    "New York": ("America/New_York", 16, "partly cloudy"),
    "Oslo": ("Europe/Oslo", 4, "light snow"),
    "Paris": ("Europe/Paris", 15, "cloudy"),
    "Rio de Janeiro": ("America/Sao_Paulo", 28, "thunderstorms"),
    "Rome": ("Europe/Rome", 20, "sunny"),
    "San Francisco": ("America/Los_Angeles", 17, "fog"),
    "Singapore": ("Asia/Singapore", 32, "showers"),
    "Sydney": ("Australia/Sydney", 23, "clear"),
    "Tokyo": ("Asia/Tokyo", 18, "clear"),
    "Toronto": ("America/Toronto", 8, "cloudy"),
    "Vienna": ("Europe/Vienna", 13, "overcast"),
}


def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict[str, str | int]:
    """Current weather of a city."""
    name = _known(city)
    if name is None:
        return {"error": f"I have no weather for {city}"}
    _, celsius, condition = CITIES[name]
    temperature = celsius if unit == "celsius" else round(celsius * 9 / 5 + 32)
    return {"city": name, "condition": condition, "temperature": temperature, "unit": unit}


def get_current_time(city: str) -> dict[str, str]:
    """Current local time of a city."""
    name = _known(city)
    if name is None:
        return {"error": f"I don't know the time zone of {city}"}
    now = datetime.now(ZoneInfo(CITIES[name][0]))
    return {"city": name, "time": f"{now:%H:%M}", "day": f"{now:%A}"}


def _known(city: str) -> str | None:
    wanted = city.strip().casefold()
    return next((name for name in CITIES if name.casefold() == wanted), None)


root_agent = LlmAgent(
    name="weather",
    model=os.environ.get("GREENROOM_MODEL", "local/smollm2-135m"),
    description="Tells the weather and the local time of cities.",
    instruction="Answer questions about the weather and the time in cities, in one or two sentences.",
    tools=[get_weather, get_current_time],
)
