from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow, node

writer = LlmAgent(name="writer", model="scripted", instruction="Write.")


def double(node_input):
    return node_input * 2


@node(rerun_on_resume=True)
async def returned(ctx, node_input):
    return await ctx.run_node(double, 2, use_as_output=True)


@node(rerun_on_resume=True)
async def yielded(ctx, node_input):
    ctx.state["seen"] = node_input
    yield await ctx.run_node(writer, "Write it", use_as_output=True)


def show(node_input):
    return f"got {node_input!r}"


root_agent = Workflow(name="wf", edges=[("START", returned, yielded, show)])
REPLIES = ["Written."]
MESSAGES = ["go"]
