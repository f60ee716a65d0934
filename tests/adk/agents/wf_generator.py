from google.adk.events import Event
from google.adk.workflow import Workflow


async def talk(node_input: str):
    yield Event(message="working")
    yield Event(state={"seen": node_input})
    yield {"done": True}


root_agent = Workflow(name="wf", edges=[("START", talk)])
REPLIES = []
MESSAGES = ["x"]
