from google.adk.agents import LlmAgent
from google.adk.planners import BuiltInPlanner
from google.genai import types

root_agent = LlmAgent(
    name="a",
    model="scripted",
    output_key="said",
    planner=BuiltInPlanner(thinking_config=types.ThinkingConfig(include_thoughts=True, thinking_budget=100)),
)
REPLIES = [[types.Part(text="Hm.", thought=True), types.Part(text="42")]]
MESSAGES = ["hi"]
