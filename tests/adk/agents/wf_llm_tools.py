from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow
from google.genai import types


def weather(city: str) -> dict:
    return {"degrees": 4}


root_agent = Workflow(name="wf", edges=[("START", LlmAgent(name="guide", model="scripted", tools=[weather]))])
REPLIES = [types.Part.from_function_call(name="weather", args={"city": "Oslo"}), "4 degrees."]
MESSAGES = ["Weather?"]
