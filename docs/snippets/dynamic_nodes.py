from greenroom import Context, Workflow, node


def split(node_input: str) -> list[str]:
    return node_input.split()


def count(node_input: str) -> int:
    return len(node_input)


@node(rerun_on_resume=True, on_interrupt="retry")
async def longest(ctx: Context, node_input: str):
    words = await ctx.run_node(split, node_input)
    counts = await ctx.run_node(node(count, parallel_worker=True, max_parallel_workers=4), words)
    return max(counts)


root_agent = Workflow(name="words", edges=[("START", longest)])
