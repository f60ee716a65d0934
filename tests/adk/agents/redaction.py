"""A callback that changes a request's contents: the session keeps its own."""

from google.adk.agents import LlmAgent


def redact(callback_context, llm_request):
    for content in llm_request.contents:
        for part in content.parts:
            if part.text:
                part.text = part.text.replace("1234", "****")


root_agent = LlmAgent(name="a", model="scripted", before_model_callback=redact)
REPLIES = ["ok", "ok"]
MESSAGES = ["pin 1234", "again"]
