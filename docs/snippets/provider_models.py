from greenroom import Claude, Gemini, LlmAgent, OpenAIResponsesLlm

gemini = Gemini("gemini-3-pro", vertexai=True, project="desk", location="europe-west1")
claude = Claude("claude-opus-5", project="desk", location="europe-west1", max_tokens=16_000)
gpt = OpenAIResponsesLlm("gpt-5", base_url="https://proxy.example.com/v1", headers={"X-Team": "desk"}, store=False)

agent = LlmAgent(name="helper", model=gemini)
