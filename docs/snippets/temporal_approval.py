from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from greenroom.temporal import AgentActivity, AgentRunInput, AgentRunResult


@workflow.defn
class Payment:
    def __init__(self) -> None:
        self.decision: bool | None = None

    @workflow.signal
    def decide(self, confirmed: bool) -> None:
        self.decision = confirmed

    @workflow.run
    async def run(self, order: str) -> str:
        result = await self.ask(AgentRunInput(app_name="approval", user_id="ada", message=order))
        while result.requests:
            await workflow.wait_condition(lambda: self.decision is not None)
            responses = [request.respond({"confirmed": self.decision}) for request in result.requests]
            self.decision = None
            result = await self.ask(
                AgentRunInput(app_name="approval", user_id="ada", session_id=result.session_id, responses=responses)
            )
        return result.text

    async def ask(self, request: AgentRunInput) -> AgentRunResult:
        return await workflow.execute_activity_method(
            AgentActivity.run,
            request,
            start_to_close_timeout=timedelta(hours=1),
            heartbeat_timeout=timedelta(seconds=30),
        )
