from greenroom import LlmAgent, SandboxCodeExecutor

analyst = LlmAgent(
    name="analyst",
    model="gemini-2.5-flash",
    instruction="Answer with Python.",
    code_executor=SandboxCodeExecutor(stateful=True, optimize_data_file=True),
)
