from greenroom import LlmAgent, OpenAILlm

agent = LlmAgent(name="helper", model=OpenAILlm("openai/qwen3", base_url="http://127.0.0.1:11434/v1"))
