from google.adk.workflow import Workflow


def upper(node_input: str) -> str:
    return node_input.upper()


async def exclaim(node_input: str) -> str:
    return node_input + "!"


root_agent = Workflow(name="wf", edges=[("START", upper, exclaim)])
REPLIES = []
MESSAGES = ["hello"]
