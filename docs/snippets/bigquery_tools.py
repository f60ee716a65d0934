from greenroom import BigQueryCredentialsConfig, BigQueryToolConfig, BigQueryToolset, LlmAgent, WriteMode


def analyst_of(client_id: str, client_secret: str) -> LlmAgent:
    bigquery = BigQueryToolset(
        credentials_config=BigQueryCredentialsConfig(client_id=client_id, client_secret=client_secret),
        bigquery_tool_config=BigQueryToolConfig(write_mode=WriteMode.PROTECTED, default_project_id="my-project"),
    )
    return LlmAgent(name="analyst", instruction="You answer questions about sales.", tools=[bigquery])
