from google.adk.workflow import Workflow


def fail(node_input: str):
    raise LookupError("no")


def never(node_input):
    return 1


root_agent = Workflow(name="wf", edges=[("START", fail, never)])
REPLIES = []
MESSAGES = ["x"]
