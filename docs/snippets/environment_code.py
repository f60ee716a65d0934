from greenroom import E2BEnvironment, EnvironmentCodeExecutor, LlmAgent

analyst = LlmAgent(
    name="analyst",
    instruction="Answer with Python code where it helps.",
    code_executor=EnvironmentCodeExecutor(environment=E2BEnvironment(), stateful=True),
)
