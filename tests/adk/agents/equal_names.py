from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.workflow import Workflow

writer = LlmAgent(name="writer", model="scripted", mode="single_turn", instruction="Write.")
helper = LlmAgent(name="writer", model="scripted", instruction="Help.")
first = Workflow(name="first", edges=[("START", writer)])
second = Workflow(name="second", edges=[("START", writer)])
steps = SequentialAgent(name="steps", sub_agents=[helper])
steps.sub_agents.append(LlmAgent(name="writer", model="scripted", instruction="Help again."))
root_agent = Workflow(name="wf", edges=[("START", first, second, writer, steps)])
REPLIES = ["One.", "Two.", "Three.", "Four.", "Five."]
MESSAGES = ["go"]
