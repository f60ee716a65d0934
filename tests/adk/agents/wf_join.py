from google.adk.workflow import JoinNode, Workflow


def split(node_input: str) -> str:
    return node_input


def left(node_input: str) -> int:
    return len(node_input)


def right(node_input: str) -> str:
    return node_input[::-1]


def merge(node_input: dict) -> dict:
    return {"merged": [node_input["left"], node_input["right"]]}


root_agent = Workflow(
    name="wf", edges=[("START", split, (left, right), JoinNode(name="both"), merge)], max_concurrency=1
)
REPLIES = []
MESSAGES = ["abc"]
