from pydantic import BaseModel
from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow


class City(BaseModel):
    name: str
    people: int


def report(node_input: City) -> str:
    return f"{node_input.name}: {node_input.people}"


root_agent = Workflow(name="wf", edges=[("START", LlmAgent(name="find", model="scripted", output_schema=City), report)])
REPLIES = ['{"name": "Oslo", "people": 7}']
MESSAGES = ["Oslo"]
