from google.adk.workflow import Workflow, node


def items(node_input: str) -> list[int]:
    return [1, 2, 3]


@node(parallel_worker=True, max_parallel_workers=1)
def square(node_input: int) -> int:
    return node_input * node_input


root_agent = Workflow(name="wf", edges=[("START", items, square)])
REPLIES = []
MESSAGES = ["x"]
