from greenroom import AgentEngineSandboxCodeExecutor, LlmAgent

analyst = LlmAgent(
    name="analyst",
    instruction="You answer with numbers that you have computed in Python.",
    code_executor=AgentEngineSandboxCodeExecutor(
        agent_engine_resource_name="projects/my-project/locations/us-central1/reasoningEngines/123"
    ),
)
