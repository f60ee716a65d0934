from google.adk.tools import FunctionTool
from google.adk.workflow import Workflow


def prepare(node_input: str) -> dict:
    return {"city": node_input, "unit": "C"}


def weather(city: str, unit: str) -> dict:
    return {"city": city, "unit": unit, "degrees": 4}


root_agent = Workflow(name="wf", edges=[("START", prepare, FunctionTool(weather))])
REPLIES = []
MESSAGES = ["Oslo"]
