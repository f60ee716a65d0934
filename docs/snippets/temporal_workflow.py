from datetime import timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from greenroom.temporal import AgentActivity, AgentRunInput


@workflow.defn
class WeatherReport:
    @workflow.run
    async def run(self, city: str) -> str:
        result = await workflow.execute_activity_method(
            AgentActivity.run,
            AgentRunInput(app_name="weather", user_id="ada", message=f"How is the weather in {city}?"),
            start_to_close_timeout=timedelta(hours=1),
            heartbeat_timeout=timedelta(seconds=30),
        )
        return result.text
