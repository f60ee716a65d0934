from google.adk.agents import LlmAgent
from google.adk.examples import Example
from google.adk.tools.example_tool import ExampleTool
from google.genai import types

examples = [Example(input=types.UserContent("2+2"), output=[types.ModelContent("4")])]
root_agent = LlmAgent(name="a", model="scripted", tools=[ExampleTool(examples=examples)])
REPLIES = ["6"]
MESSAGES = ["3+3"]
