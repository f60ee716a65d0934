from google.adk.apps import App, ResumabilityConfig
from google.adk.workflow import Workflow


def one(node_input: str) -> str:
    return "1"


def two(node_input: str) -> str:
    return node_input + "2"


app = App(
    name="app",
    root_agent=Workflow(name="wf", edges=[("START", one, two)]),
    resumability_config=ResumabilityConfig(is_resumable=True),
)
REPLIES = []
MESSAGES = ["x"]
