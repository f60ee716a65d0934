from greenroom import Context, Workflow, node


@node(rerun_on_resume=True, on_interrupt="retry")
async def collect(ctx: Context, node_input: str):
    for _ in range(3):
        try:
            return await ctx.wait_for("paid", timeout=7 * 86400)
        except TimeoutError:
            await ctx.run_node(send_reminder, node_input)
    return "not paid"


def send_reminder(node_input: str) -> str:
    return f"reminded of {node_input}"


root_agent = Workflow(name="collector", edges=[("START", collect)])
