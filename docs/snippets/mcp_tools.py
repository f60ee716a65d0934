from greenroom import LlmAgent, McpToolset, StdioServerParameters

library = McpToolset(
    connection_params=StdioServerParameters(command="python", args=["examples/mcp_library/server.py"]),
    tool_filter=["search_books"],
    tool_name_prefix="library",
)

librarian = LlmAgent(name="librarian", instruction="Find books.", tools=[library])
