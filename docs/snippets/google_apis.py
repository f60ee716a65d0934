from greenroom import CalendarToolset, GoogleApiToolset, LlmAgent


def secretary_of(client_id: str, client_secret: str) -> LlmAgent:
    calendar = CalendarToolset(
        client_id,
        client_secret,
        tool_filter=["calendar_events_list", "calendar_events_insert"],
    )
    tasks = GoogleApiToolset("tasks", "v1", client_id, client_secret)
    return LlmAgent(name="secretary", instruction="You keep a diary.", tools=[calendar, tasks])
