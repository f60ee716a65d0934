from google.adk.agents import Context
from google.adk.events import Event
from google.adk.workflow import DEFAULT_ROUTE, Workflow


def read_order(node_input: str, ctx: Context):
    ctx.state["order"] = node_input
    return Event(output=node_input, route="large" if len(node_input) > 8 else "small")


def large(node_input):
    return {"large": node_input}


def small(order: str):
    return {"small": order}


root_agent = Workflow(name="wf", edges=[("START", read_order, {"large": large, DEFAULT_ROUTE: small})])
REPLIES = []
MESSAGES = ["ten thousand pens", "a pen"]
