from google.adk.agents import Context
from google.adk.workflow import Workflow, node


def double(node_input: int) -> int:
    return node_input * 2


@node(rerun_on_resume=True)
async def plan(ctx: Context, node_input: str):
    total = 0
    for n in (1, 2, 3):
        total += await ctx.run_node(double, n)
    yield total


root_agent = Workflow(name="wf", edges=[("START", plan)])
REPLIES = []
MESSAGES = ["x"]
