from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow

writer = LlmAgent(name="writer", model="scripted", instruction="Write.", output_key="draft")
critic = LlmAgent(name="critic", model="scripted", instruction="Judge {draft}.")


def shorten(node_input: str) -> str:
    return node_input[:5]


root_agent = Workflow(name="wf", edges=[("START", writer, shorten, critic)])
REPLIES = ["A long draft", "Good."]
MESSAGES = ["go"]
