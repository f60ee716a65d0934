from google.adk.agents import LlmAgent
from google.adk.code_executors import UnsafeLocalCodeExecutor

root_agent = LlmAgent(name="a", model="scripted", code_executor=UnsafeLocalCodeExecutor())
REPLIES = ["```python\nprint(6 * 7)\n```", "It is 42."]
MESSAGES = ["6 * 7?"]
