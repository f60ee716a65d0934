from google.adk.workflow import Workflow, node


def double(node_input):
    return node_input * 2


@node(rerun_on_resume=True)
async def twice(ctx, node_input):
    await ctx.run_node(double, 1, use_as_output=True)
    return await ctx.run_node(double, 2, use_as_output=True)


root_agent = Workflow(name="wf", edges=[("START", twice)])
REPLIES = []
MESSAGES = ["go"]
