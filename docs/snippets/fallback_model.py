from greenroom import LlmAgent

agent = LlmAgent(name="helper", model=["gemini-3-pro", "claude-opus-5", "local/smollm2-135m"])
