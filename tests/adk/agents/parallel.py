from google.adk.agents import LlmAgent, ParallelAgent, SequentialAgent

one = LlmAgent(name="one", model="scripted", output_key="one")
both = ParallelAgent(name="both", sub_agents=[one])
last = LlmAgent(name="last", model="scripted", instruction="{one}")
root_agent = SequentialAgent(name="team", sub_agents=[both, last])
REPLIES = ["first", "second"]
MESSAGES = ["go"]
