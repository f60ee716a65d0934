from google.adk.events import Event
from google.adk.workflow import Workflow


def first(node_input: str):
    return Event(state={"a": 1, "user:b": node_input})


def second(a: int, ctx):
    ctx.state["c"] = a + 1


def third(a: int, c: int, d: int = 5) -> list:
    return [a, c, d]


root_agent = Workflow(name="wf", edges=[("START", first, second, third)])
REPLIES = []
MESSAGES = ["x"]
