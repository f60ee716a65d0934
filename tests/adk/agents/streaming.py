from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode

root_agent = LlmAgent(name="a", model="scripted", output_key="said")
RUN_CONFIG = RunConfig(streaming_mode=StreamingMode.SSE)
REPLIES = ["one two three"]
MESSAGES = ["hi"]
