from google.adk.events import Event
from google.adk.workflow import BaseNode, Workflow


class Greeter(BaseNode):
    greeting: str = "Hello"

    async def _run_impl(self, *, ctx, node_input):
        yield Event(output=f"{self.greeting} {node_input.parts[0].text}")


root_agent = Workflow(name="wf", edges=[("START", Greeter(name="greeter", greeting="Hi"))])
REPLIES = []
MESSAGES = ["Ada"]
