from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow
from google.genai import types

collect = LlmAgent(name="collect", model="scripted", mode="task", output_key="size")
talk = LlmAgent(name="talk", model="scripted", mode="task")


def use(node_input) -> dict:
    return {"got": node_input}


root_agent = Workflow(name="wf", edges=[("START", collect, use, talk)])
REPLIES = [
    "Which size?",
    "How big?",
    types.Part.from_function_call(name="finish_task", args={"result": "large"}),
    "Anything else?",
    types.Part.from_function_call(name="finish_task", args={"result": "no"}),
    "First",
    "x",
]
MESSAGES = ["a pizza", "hm", "large", "nope", "new"]
