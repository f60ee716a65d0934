from enum import Enum
from typing import Literal

from google.adk.agents import LlmAgent
from google.genai import types
from pydantic import BaseModel


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Order(BaseModel):
    dish: str
    count: int = 1


def order(order: Order, size: Size, when: Literal["now", "later"] = "now", note: str | None = None) -> dict:
    return {"dish": order.dish, "count": order.count, "size": getattr(size, "value", size), "when": when, "note": note}


root_agent = LlmAgent(name="a", model="scripted", tools=[order])
REPLIES = [types.Part.from_function_call(name="order", args={"order": {"dish": "soup"}, "size": "large"}), "ok"]
MESSAGES = ["soup"]
