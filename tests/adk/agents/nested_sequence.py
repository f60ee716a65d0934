from google.adk.agents import LlmAgent, LoopAgent, SequentialAgent


def agent(name):
    return LlmAgent(name=name, model="scripted", output_key=name)


inner = SequentialAgent(
    name="inner", sub_agents=[agent("b"), LoopAgent(name="again", sub_agents=[agent("c")], max_iterations=2)]
)
root_agent = SequentialAgent(name="outer", sub_agents=[agent("a"), inner, agent("d")])
REPLIES = ["1", "2", "3", "4", "5"]
MESSAGES = ["go"]
