from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps import App, ResumabilityConfig

root_agent = SequentialAgent(
    name="pipe", sub_agents=[LlmAgent(name="one", model="scripted"), LlmAgent(name="two", model="scripted")]
)
app = App(name="app", root_agent=root_agent, resumability_config=ResumabilityConfig(is_resumable=True))
REPLIES = ["1", "2"]
MESSAGES = ["go"]
