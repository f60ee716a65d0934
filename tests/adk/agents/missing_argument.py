from google.adk.agents import LlmAgent
from google.genai import types


def order(dish: str, count: int) -> str:
    return dish * count


root_agent = LlmAgent(name="a", model="scripted", tools=[order])
REPLIES = [types.Part.from_function_call(name="order", args={"dish": "soup"}), "How many?"]
MESSAGES = ["soup"]
