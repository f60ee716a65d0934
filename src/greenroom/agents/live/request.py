"""What a live connection is opened with."""

from __future__ import annotations

from greenroom.agents.base_llm_agent import BaseLlmAgent
from greenroom.agents.live.task_completed import TaskCompletedTool
from greenroom.agents.turn.build_request import build_request
from greenroom.invocation.context import InvocationContext
from greenroom.invocation.user_context import ToolContext
from greenroom.models.model import BaseLlm
from greenroom.records.model_exchange import LiveConnectConfig, LlmRequest


async def build_live_request(
    agent: BaseLlmAgent, ctx: InvocationContext, model: BaseLlm, *, handle: str | None
) -> LlmRequest:
    """The request of a text turn, with the run's settings for the connection; its contents are the history.

    handle: of the session at the vendor that is to be resumed.
    """
    request = await build_request(agent, ctx, model)
    if ctx.says_when_done:
        done = TaskCompletedTool()
        request.append_instructions([done.instruction])
        await done.process_llm_request(tool_context=ToolContext(ctx), llm_request=request)
    settings = ctx.run_config
    resumption = settings.session_resumption
    if handle is not None:
        resumption = {**(resumption or {}), "handle": handle}
    request.live_connect_config = LiveConnectConfig(
        response_modalities=settings.response_modalities,
        speech_config=settings.speech_config,
        input_audio_transcription=settings.input_audio_transcription,
        output_audio_transcription=settings.output_audio_transcription,
        realtime_input_config=settings.realtime_input_config,
        session_resumption=resumption,
        context_window_compression=settings.context_window_compression,
        enable_affective_dialog=settings.enable_affective_dialog,
        proactivity=settings.proactivity,
        explicit_vad_signal=settings.explicit_vad_signal,
    )
    take_over_config(request)
    return request


def take_over_config(request: LlmRequest) -> None:
    """Give the connection the instruction and the tools of the request's config, where callbacks may change them."""
    connect = request.live_connect_config
    assert connect is not None
    connect.system_instruction = request.config.system_text() or None
    connect.tools = request.config.tools
