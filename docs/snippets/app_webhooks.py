from greenroom import App, LlmAgent, Webhook
from greenroom.records.run import RunStatus

app = App(
    name="weather",
    root_agent=LlmAgent(name="weather"),
    webhooks=[
        Webhook(url="https://example.com/all"),
        Webhook(id="pager", url="https://example.com/page", states=[RunStatus.FAILED]),
    ],
)
