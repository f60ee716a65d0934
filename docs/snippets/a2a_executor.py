from greenroom import A2aAgentExecutor, A2aAgentExecutorConfig, ExecuteInterceptor, LlmAgent, to_a2a

root_agent = LlmAgent(name="helper", description="Says how warm it is.")


async def before_agent(request):  # the message with its ids, parts and metadata, the task and the caller
    print(request.message.message_id, request.metadata)
    return request


config = A2aAgentExecutorConfig(execute_interceptors=[ExecuteInterceptor(before_agent=before_agent)])
app = to_a2a(  # uvicorn helper:app
    root_agent, agent_executor_factory=lambda runner: A2aAgentExecutor(runner=runner, config=config)
)
