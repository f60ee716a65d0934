from greenroom import LlmAgent, McpToolset, StdioConnectionParams, StdioServerParameters

library = McpToolset(
    connection_params=StdioConnectionParams(
        StdioServerParameters(command="python", args=["examples/mcp_library/server.py"]), timeout=20
    ),
    tool_filter=["search_books"],
    tool_name_prefix="library",
)

librarian = LlmAgent(name="librarian", instruction="Find books.", tools=[library])
