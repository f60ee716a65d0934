"""A chain of 1,000 function nodes, each of which hands on its input."""

# pyright: basic, reportMissingImports=false

from google.adk.workflow import FunctionNode, Workflow


def step(node_input: object) -> str:
    return "reached the end"


nodes = [FunctionNode(func=step, name=f"step{number}") for number in range(1_000)]
root_agent = Workflow(name="chain", edges=[("START", *nodes)])
