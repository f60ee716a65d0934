from greenroom import E2BEnvironment, LlmAgent, SandboxCodeExecutor

analyst = LlmAgent(
    name="analyst",
    instruction="Answer with Python code where it helps.",
    code_executor=SandboxCodeExecutor(E2BEnvironment(working_dir="/home/user/work"), stateful=True),
)
