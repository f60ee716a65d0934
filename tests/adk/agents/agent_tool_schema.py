from google.adk.agents import LlmAgent
from google.adk.tools.agent_tool import AgentTool
from google.genai import types
from pydantic import BaseModel


class Question(BaseModel):
    topic: str
    depth: int = 1


class Answer(BaseModel):
    text: str


expert = LlmAgent(name="expert", model="scripted", input_schema=Question, output_schema=Answer)
root_agent = LlmAgent(name="desk", model="scripted", tools=[AgentTool(agent=expert, skip_summarization=True)])
REPLIES = [types.Part.from_function_call(name="expert", args={"topic": "ice"}), '{"text": "cold"}', "never"]
MESSAGES = ["Ice?"]
