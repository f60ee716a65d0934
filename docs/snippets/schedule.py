from greenroom import App, LlmAgent, Schedule

umbrella = Schedule(
    id="umbrella",
    user_id="ada",
    cron="30 7 * * MON-FRI",
    time_zone="Europe/Berlin",
    message="Do I need an umbrella today?",
)
agent = LlmAgent(name="weather", model="local/smollm2-135m")
app = App(name="weather", root_agent=agent, schedules=[umbrella])
