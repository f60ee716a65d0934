from google.adk.agents import LlmAgent
from google.adk.workflow import Workflow


def topics():
    return ["tea", "coffee"]


writer = LlmAgent(name="writer", model="scripted", instruction="Write.", parallel_worker=True)
root_agent = Workflow(name="wf", edges=[("START", topics, writer)])
REPLIES = ["About tea.", "About coffee."]
MESSAGES = ["go"]
REQUESTS = "contents"
