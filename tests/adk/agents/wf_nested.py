from google.adk.workflow import Workflow


def add(node_input: str) -> str:
    return node_input + "a"


def more(node_input: str) -> str:
    return node_input + "b"


inner = Workflow(name="inner", edges=[("START", add, more)])
root_agent = Workflow(name="outer", edges=[("START", inner, add)])
REPLIES = []
MESSAGES = ["x"]
