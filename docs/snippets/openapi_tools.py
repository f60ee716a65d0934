from greenroom import LlmAgent, OpenAPIToolset


def operator_of(url: str) -> LlmAgent:
    server = OpenAPIToolset(
        spec_url=f"{url}/openapi.json",
        tool_filter=["list_apps", "health"],
        allow_private_network_access=True,  # the server may be on this machine
    )
    return LlmAgent(name="operator", instruction="You look after a server.", tools=[server])
