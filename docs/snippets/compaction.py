from greenroom import App, EventsCompactionConfig, LlmAgent

agent = LlmAgent(name="helper", model="gemini-2.5-flash")

app = App(
    name="helper",
    root_agent=agent,
    events_compaction_config=EventsCompactionConfig(
        compaction_interval=20,
        overlap_size=2,
        token_threshold=100_000,
        event_retention_size=30,
    ),
)
