from google.adk.events import Event
from google.adk.workflow import Edge, FunctionNode, START, Workflow


def pick(node_input: str):
    return Event(output=node_input, route=["a", "b"])


def one(node_input: str) -> None:
    return None


def two(node_input: str) -> str:
    return "two"


picker = FunctionNode(func=pick, name="picker")
first, second = FunctionNode(func=one), FunctionNode(func=two)
root_agent = Workflow(
    name="wf",
    max_concurrency=1,
    edges=[
        Edge(from_node=START, to_node=picker),
        Edge(from_node=picker, to_node=first, route="a"),
        Edge(from_node=picker, to_node=second, route=["b", "c"]),
    ],
)
REPLIES = []
MESSAGES = ["x"]
