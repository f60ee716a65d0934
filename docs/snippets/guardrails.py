from greenroom import AllowedHosts, AllowedTools, App, GuardrailPlugin, LlmAgent, PatternCheck


def fetch(url: str) -> str:
    """Fetches a page."""
    return f"The page at {url}"


agent = LlmAgent(name="helper", model="gemini-2.5-flash", tools=[fetch])

app = App(
    name="helper",
    root_agent=agent,
    plugins=[
        GuardrailPlugin(
            [
                PatternCheck("card_number"),
                PatternCheck("token"),
                PatternCheck("employee", r"\bE-\d{6}\b", longest_match=8),
                AllowedTools(["fetch", "search_*"], on_violation="block"),
                AllowedHosts(["example.com", "*.example.org"], on_violation="ask"),
            ],
            on_violation="redact",
        )
    ],
)
