import asyncio
from google.adk.workflow import Workflow, node


@node(timeout=0.05)
async def slow(node_input: str):
    await asyncio.sleep(5)


root_agent = Workflow(name="wf", edges=[("START", slow)])
REPLIES = []
MESSAGES = ["x"]
