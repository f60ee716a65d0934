from google.adk.agents import Context
from google.adk.events import Event
from google.adk.workflow import Workflow


def count(ctx: Context):
    ctx.state["n"] = ctx.state.get("n", 0) + 1
    return Event(output=ctx.state["n"], route="again" if ctx.state["n"] < 3 else "done")


def end(node_input: int):
    return {"passes": node_input}


root_agent = Workflow(name="wf", edges=[("START", count, {"again": count, "done": end})])
REPLIES = []
MESSAGES = ["go"]
