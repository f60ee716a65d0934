from greenroom import InMemoryRunner, LlmAgent, types
from greenroom.apps.load_directory import DirectoryAppLoader
from greenroom.testing import ScriptedModel


async def test_a_large_refund_waits_for_a_person() -> None:
    desk = DirectoryAppLoader("agents").load("desk").root_agent
    assert isinstance(desk, LlmAgent)
    desk.model = ScriptedModel([types.FunctionCall(name="refund", args={"order": "A-2"}), "Done."])
    runner = InMemoryRunner(desk, app_name="desk")
    session = await runner.session_service.create_session(app_name="desk", user_id="ada")

    message = types.UserContent("I want my money back for A-2.")
    events = [e async for e in runner.run_async(user_id="ada", session_id=session.id, new_message=message)]
    [request] = [call for event in events for call in event.get_function_calls() if call.name != "refund"]
    assert request.name == "adk_request_confirmation"

    yes = types.FunctionResponse(id=request.id, name=request.name, response={"confirmed": True})
    answer = types.Content(role="user", parts=[types.Part(function_response=yes)])
    events = [e async for e in runner.run_async(user_id="ada", session_id=session.id, new_message=answer)]
    [refunded] = events[0].get_function_responses()
    assert refunded.response == {"status": "refunded", "order": "A-2"}
