import copy

from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.tools import AgentTool, FunctionTool, LongRunningFunctionTool
from google.adk.workflow import Workflow
from pydantic import BaseModel


class Order(BaseModel):
    dish: str


def cook(order: Order) -> str:
    return f"cooked {order.dish}"


def finish(node_input):
    return "finished"


helper = LlmAgent(name="helper", model="scripted", input_schema=Order)
tools = [cook, FunctionTool(finish), LongRunningFunctionTool(finish), AgentTool(helper)]
cooking = LlmAgent(name="cooking", model="scripted", tools=tools)
copied = copy.deepcopy(cooking)
copied.name = "copied"
assert copied.tools[0] is cook

team = copy.deepcopy(SequentialAgent(name="team", sub_agents=[cooking]))


flow = copy.deepcopy(Workflow(name="flow", edges=[("START", finish, helper)]))
root_agent = SequentialAgent(name="seq", sub_agents=[copied, team])
call = types.Part.from_function_call(name="cook", args={"order": {"dish": "soup"}})
REPLIES = [call, "Done.", call, "Done, too."]
MESSAGES = ["go"]
