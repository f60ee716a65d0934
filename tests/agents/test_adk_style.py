"""Agents as people write them for ADK, with their imports changed: each loads and takes a turn."""

from __future__ import annotations

import sys
import textwrap
from types import ModuleType
from typing import Any

import pytest

from greenroom import InMemoryRunner, types

HEAD = """
from __future__ import annotations
from typing import Any, AsyncGenerator, ClassVar, Optional
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from greenroom import *
from greenroom import types
from greenroom.testing import ScriptedModel
def call(name, **args):
    return types.FunctionCall(name=name, args=args)
"""

AGENTS: dict[str, str] = {
    "safety settings of enums": """
        root_agent = Agent(name="a", model=ScriptedModel(["done"]), generate_content_config=types.GenerateContentConfig(
            temperature=0.1, safety_settings=[types.SafetySetting(
                category=types.HarmCategory.HARM_CATEGORY_DANGEROUS_CONTENT, threshold=types.HarmBlockThreshold.OFF)]))
    """,
    "generation config as a dict": """
        root_agent = Agent(name="a", model=ScriptedModel(["done"]), generate_content_config={
            "temperature": 0.2, "max_output_tokens": 50, "safetySettings": [{"category": "HARM_CATEGORY_HARASSMENT"}]})
        assert root_agent.generate_content_config.safety_settings[0].category == "HARM_CATEGORY_HARASSMENT"
    """,
    "retries, voices and tool modes": """
        config = types.GenerateContentConfig(
            http_options=types.HttpOptions(timeout=1000, retry_options=types.HttpRetryOptions(attempts=3, initial_delay=1)),
            speech_config=types.SpeechConfig(voice_config=types.VoiceConfig(
                prebuilt_voice_config=types.PrebuiltVoiceConfig(voice_name="Puck"))),
            tool_config=types.ToolConfig(function_calling_config=types.FunctionCallingConfig(
                mode=types.FunctionCallingConfigMode.AUTO)),
            automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True),
            media_resolution=types.MediaResolution.MEDIA_RESOLUTION_LOW)
        root_agent = LlmAgent(name="a", model=ScriptedModel(["done"]), generate_content_config=config)
    """,
    "live options": """
        config = RunConfig(
            response_modalities=[types.Modality.AUDIO], proactivity=types.ProactivityConfig(proactive_audio=True),
            output_audio_transcription=types.AudioTranscriptionConfig(), save_live_audio=True, support_cfc=False,
            session_resumption=types.SessionResumptionConfig(transparent=True),
            realtime_input_config=types.RealtimeInputConfig(
                automatic_activity_detection=types.AutomaticActivityDetection(disabled=True)))
        root_agent = Agent(name="a", model=ScriptedModel(["done"]))
    """,
    "a property in place of a field, and the events of another agent closed": """
        class Coder(LlmAgent):
            _output_key: str = "summary"

            @property
            def output_key(self):
                return self._output_key

            async def _run_async_impl(self, ctx):
                async with Aclosing(self.sub_agents[0].run_async(ctx)) as events:
                    async for event in events:
                        yield event

        root_agent = Coder(name="a", sub_agents=[Agent(name="b", model=ScriptedModel(["done"]))])
        assert root_agent.output_key == "summary"
        ReflectAndRetryToolPlugin(tracking_scope=TrackingScope.GLOBAL)
    """,
    "an agent with a Field, private attributes and a config": """
        class Story(BaseAgent):
            model_config = ConfigDict(arbitrary_types_allowed=True)
            writer: LlmAgent
            rounds: int = Field(default=1, description="How often.", ge=1)
            tags: list[str] = Field(default_factory=list)
            words: list[str] = ["done"]
            _count: int = PrivateAttr(default=0)
            _seen: list[str] = PrivateAttr(default_factory=list)
            def model_post_init(self, __context: Any) -> None:
                self._count = self.rounds
            async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event, None]:
                assert self._count == 1 and self._seen == [] and self.tags == []
                async for event in self.writer.run_async(ctx):
                    yield event
        writer = LlmAgent(name="writer", model=ScriptedModel(["done"]))
        root_agent = Story(name="story", writer=writer, sub_agents=[writer])
        assert Story(name="other", writer=writer).words is not root_agent.words
    """,
    "an agent with its own __init__": """
        class Flow(BaseAgent):
            first: LlmAgent
            limit: int = 3
            model_config = {"arbitrary_types_allowed": True}
            def __init__(self, name: str, first: LlmAgent):
                super().__init__(name=name, first=first, sub_agents=[first])
            async def _run_async_impl(self, ctx):
                async for event in self.first.run_async(ctx):
                    yield event
        root_agent = Flow("flow", LlmAgent(name="first", model=ScriptedModel(["done"])))
    """,
    "an agent that takes extra fields": """
        class Loose(BaseAgent):
            model_config = ConfigDict(extra="allow")
            async def _run_async_impl(self, ctx):
                yield Event(author=self.name, content=types.ModelContent(self.word))
        root_agent = Loose(name="loose", word="done")
    """,
    "an agent's own Event of a dict": """
        class Says(BaseAgent):
            async def _run_async_impl(self, ctx):
                yield Event(author=self.name, invocationId=ctx.invocation_id,
                    content={"role": "model", "parts": [{"text": "done"}]}, actions={"stateDelta": {"k": 1}})
                assert ctx.session.state["k"] == 1
        root_agent = Says(name="says")
    """,
    "Event(message, state)": """
        class Says(BaseAgent):
            async def _run_async_impl(self, ctx):
                yield Event(author=self.name, message="done", state={"k": 1})
        root_agent = Says(name="says")
    """,
    "an agent that copies its context": """
        class Branching(BaseAgent):
            async def _run_async_impl(self, ctx):
                inner = ctx.model_copy(update={"branch": "x"})
                assert (ctx.branch, inner.branch, inner.session) == (None, "x", ctx.session)
                assert ctx.session_service and ctx.credential_service
                yield Event(author=self.name, message="done")
        root_agent = Branching(name="branching")
    """,
    "views of dicts, decimals and paths in state, results and arguments": """
        import collections, dataclasses, datetime, decimal, enum, pathlib, types as python_types
        class Size(enum.Enum):
            SMALL = "small"
        @dataclasses.dataclass
        class Dish:
            name: str
        table = {"soup": 1}
        odd = {
            "view": table.keys(), "values": table.values(), "items": table.items(), "read_only": python_types.MappingProxyType(table),
            "queue": collections.deque([1]), "frozen": frozenset([1]), "price": decimal.Decimal("1.50"),
            "day": datetime.date(2026, 1, 2), "path": pathlib.Path("a/b"), "size": Size.SMALL, "dish": Dish("soup"),
        }
        plain = {
            "view": ["soup"], "values": [1], "items": [["soup", 1]], "read_only": {"soup": 1}, "queue": [1], "frozen": [1],
            "price": "1.50", "day": "2026-01-02", "path": "a/b", "size": "small", "dish": {"name": "soup"},
        }
        EXPECTED_STATE = {**plain, "nested": plain, "by_tool": plain}
        def fill(callback_context):
            callback_context.state["nested"] = odd
            for name, value in odd.items():
                callback_context.state[name] = value
        def find(x: dict, tool_context: ToolContext) -> dict:
            assert x == plain, x
            tool_context.state["by_tool"] = odd
            return python_types.MappingProxyType(odd)
        def ask(callback_context, llm_response):
            if llm_response.content.parts[0].text == "ask":
                arguments = python_types.MappingProxyType({"x": odd})
                call = types.FunctionCall(name="find", args={})
                call.args = arguments
                return LlmResponse(content=types.Content(role="model", parts=[types.Part(function_call=call)]))
        def see(callback_context, llm_request):
            if len(llm_request.contents) > 1:
                assert llm_request.contents[-1].parts[0].function_response.response == plain
        root_agent = Agent(name="a", model=ScriptedModel(["ask", "done"]), tools=[find], before_agent_callback=fill,
            before_model_callback=see, after_model_callback=ask)
    """,
    "sub-agents appended in place, and a clone": """
        root_agent = Agent(name="a", model=ScriptedModel(["done"]))
        root_agent.tools.append(exit_loop)
        assert root_agent.sub_agents == [] and Agent(name="b").tools == []
        twin = root_agent.clone(update={"name": "twin"})
        assert (twin.name, twin.tools, twin.tools is root_agent.tools) == ("twin", [exit_loop], False)
        assert root_agent.model_copy(update={"description": "d"}).description == "d" != root_agent.description
    """,
    "a model with fields": """
        class Echo(BaseLlm):
            model: str = "echo"
            prefix: str = Field(default="do", description="...")
            _calls: int = PrivateAttr(default=0)
            @classmethod
            def supported_models(cls) -> list[str]:
                return ["echo"]
            async def generate_content_async(self, llm_request, stream=False):
                self._calls += 1
                yield LlmResponse(content={"role": "model", "parts": [{"text": self.prefix + "ne"}]})
        root_agent = Agent(name="a", model=Echo())
        assert Echo(model="other", prefix="x").model == "other"
    """,
    "a model with its own __init__": """
        class Fixed(BaseLlm):
            answer: str
            def __init__(self, answer, **kwargs):
                super().__init__(model="fixed", answer=answer, **kwargs)
            async def generate_content_async(self, llm_request, stream=False):
                yield LlmResponse(content=types.Content(role="model", parts=[types.Part(self.answer)]))
        root_agent = Agent(name="a", model=Fixed("done"))
    """,
    "a tool with class attributes": """
        class Add(BaseTool):
            name = "add"
            description = "Adds."
            def __init__(self):
                self.calls = 0
            def _get_declaration(self):
                return types.FunctionDeclaration(name=self.name, description=self.description, parameters=types.Schema(
                    type=types.Type.OBJECT, properties={"a": {"type": "INTEGER"}}, required=["a"]))
            async def run_async(self, *, args, tool_context):
                return args["a"] + 1
        root_agent = Agent(name="a", model=ScriptedModel([call("add", a=1), "done"]), tools=[Add()])
    """,
    "a toolset without super().__init__": """
        class Tools(BaseToolset):
            def __init__(self, prefix: str = "x"):
                self.prefix = prefix
            async def get_tools(self, readonly_context: Optional[ReadonlyContext] = None) -> list[BaseTool]:
                def look(q: str) -> str:
                    "Looks."
                    return q
                return [FunctionTool(func=look)]
            async def close(self) -> None: ...
        root_agent = Agent(name="a", model=ScriptedModel([call("look", q="x"), "done"]), tools=[Tools()])
    """,
    "a plugin": """
        class Counting(BasePlugin):
            def __init__(self, name: str = "counting") -> None:
                super().__init__(name=name)
                self.count = 0
            async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest):
                self.count += 1
        root_agent = Agent(name="a", model=ScriptedModel(["done"]))
        app = App(name="app", root_agent=root_agent, plugins=[Counting()])
    """,
    "callbacks with parameters of other names": """
        seen = []
        def before_agent(ctx):
            seen.append(ctx.agent_name)
        async def before_model(context, request):
            seen.append(len(request.contents))
        def after_model(context, response):
            seen.append(response.content.parts[0].text)
        def before_tool(t, arguments, context):
            seen.append((t.name, arguments))
        def after_tool(t, arguments, context, result):
            seen.append(result)
        def ping(): return "pong"
        root_agent = Agent(name="a", model=ScriptedModel([call("ping"), "done"]), tools=[ping],
            before_agent_callback=before_agent, before_model_callback=[before_model], after_model_callback=after_model,
            before_tool_callback=before_tool, after_tool_callback=after_tool)
        def check():
            assert seen == ["a", 1, None, ("ping", {}), "pong", 3, "done"], seen
    """,
    "a callback object that can't be hashed": """
        from dataclasses import dataclass
        @dataclass
        class Guard:
            word: str
            def __call__(self, callback_context, llm_request):
                return LlmResponse(content=types.ModelContent(self.word))
        root_agent = Agent(name="a", model=ScriptedModel([]), before_model_callback=Guard("done"))
    """,
    "annotated callback aliases": """
        def guard(callback_context: Context, llm_request: LlmRequest) -> Optional[LlmResponse]:
            return LlmResponse(content=types.Content(role="model", parts=[types.Part(text="done")]))
        before: BeforeModelCallback = guard
        after: Optional[AfterAgentCallback] = None
        root_agent = Agent(name="a", model=ScriptedModel([]), before_model_callback=before, after_agent_callback=after)
    """,
    "Context in a tool": """
        def remember(word: str, ctx: Context) -> dict:
            ctx.state["word"] = word
            assert ctx.get_invocation_context().session is ctx.session and ctx.custom_metadata == {}
            return {"ok": True}
        root_agent = Agent(name="a", model=ScriptedModel([call("remember", word="x"), "done"]), tools=[remember])
    """,
    "CallbackContext in a tool": """
        def remember(word: str, tool_context: CallbackContext) -> dict:
            return {"id": tool_context.function_call_id, "agent": tool_context._invocation_context.agent.name}
        root_agent = Agent(name="a", model=ScriptedModel([call("remember", word="x"), "done"]), tools=[remember])
        assert CallbackContext is ToolContext is Context
    """,
    "the invocation context behind a callback": """
        def before(callback_context: CallbackContext):
            inner = callback_context._invocation_context
            assert inner.session.id and inner.agent.name == "a" and inner.invocation_id
        root_agent = Agent(name="a", model=ScriptedModel(["done"]), before_agent_callback=before)
    """,
    "redaction of dumps": """
        def before(callback_context, llm_request):
            last = llm_request.contents[-1]
            assert last.model_dump(exclude_none=True) == {"role": "user", "parts": [{"text": "hi"}]}
            again = types.Content.model_validate(last.model_dump())
            assert again == last and types.Content.model_validate_json(last.model_dump_json()) == last
        root_agent = Agent(name="a", model=ScriptedModel(["done"]), before_model_callback=before)
    """,
    "a pydantic output with a record in it": """
        class Answer(BaseModel):
            text: str = Field(description="...")
            part: Optional[types.Part] = None
        def after(callback_context, llm_response):
            Answer(text="x", part=llm_response.content.parts[0])
        root_agent = Agent(name="a", model=ScriptedModel(["done"]), after_model_callback=after)
    """,
    "grounding by attribute": """
        found = LlmResponse(content=types.ModelContent("done"), grounding_metadata=types.GroundingMetadata(
            web_search_queries=["q"], grounding_chunks=[types.GroundingChunk(web=types.GroundingChunkWeb(uri="u"))]))
        class Grounded(BaseLlm):
            async def generate_content_async(self, llm_request, stream=False):
                yield found
        def after(callback_context, llm_response):
            assert llm_response.grounding_metadata.grounding_chunks[0].web.uri == "u"
        root_agent = Agent(name="a", model=Grounded(model="g"), after_model_callback=after)
    """,
    "service-side tools of types.Tool": """
        def before(callback_context, llm_request):
            llm_request.config.tools = [types.Tool(google_search=types.GoogleSearch()),
                types.Tool(code_execution=types.ToolCodeExecution), types.Tool(url_context=types.UrlContext())]
        root_agent = Agent(name="a", model=ScriptedModel(["done"]), before_model_callback=before)
    """,
    "parts of code": """
        part = types.Part(executable_code=types.ExecutableCode(code="1", language=types.Language.PYTHON))
        result = types.Part(code_execution_result=types.CodeExecutionResult(outcome=types.Outcome.OUTCOME_OK, output="1"))
        assert part.executable_code.language == "PYTHON" and result.code_execution_result.outcome == types.Outcome.OUTCOME_OK
        root_agent = Agent(name="a", model=ScriptedModel(["done"]))
    """,
    "scheduling of responses": """
        types.FunctionResponse(name="f", response={}, scheduling=types.FunctionResponseScheduling.WHEN_IDLE)
        types.FunctionDeclaration(name="f", behavior=types.Behavior.NON_BLOCKING)
        root_agent = Agent(name="a", model=ScriptedModel(["done"]))
    """,
    "configs of YAML agents": """
        class MineConfig(BaseAgentConfig):
            word: str = Field(default="done")
        class Mine(BaseAgent):
            config_type: ClassVar[type[BaseAgentConfig]] = MineConfig
            async def _run_async_impl(self, ctx):
                yield Event(author=self.name, message=self.config_type(name="c").word)
        root_agent = Mine(name="mine")
    """,
    "a skill with resources": """
        skill = Skill(frontmatter=Frontmatter(name="brew", description="Tea."), instructions="Boil.",
            resources=Resources(references={"tea.md": "hot"}, scripts={"x.py": Script(src="1")}))
        assert skill.read("references/tea.md", max_bytes=9) == b"hot" and skill.read("scripts/x.py", max_bytes=9) == b"1"
        root_agent = Agent(name="a", model=ScriptedModel(["done"]))
    """,
    "errors that ADK's users catch": """
        async def missing():
            raise KeyError("x")
        def load(tool_context: ToolContext):
            try:
                tool_context.request_confirmation()
            except ValueError:
                pass
            return "ok"
        root_agent = Agent(name="a", model=ScriptedModel([call("load"), "done"]))
        root_agent.tools = [LongRunningFunctionTool(func=missing)]
        try:
            Agent(name="not a name!")
        except ValueError:
            root_agent.tools = []
        root_agent.model = ScriptedModel(["done"])
    """,
    "public loaders and models": """
        assert StaticAppLoader and BuiltOutputLoader and ComponentRegistry
        root_agent = Agent(name="a", model=OpenAILlm(model="gpt-4o", headers={"x": "y"}))
        root_agent.model = ScriptedModel(["done"])
    """,
    "a session service in use before the run": """
        sessions = InMemorySessionService()
        made = sessions.create_session_sync(app_name="x", user_id="u", session_id="s", state={"k": 1})
        assert sessions.get_session_sync(app_name="x", user_id="u", session_id="s").state == {"k": 1} == made.state
        assert [one.id for one in sessions.list_sessions_sync(app_name="x", user_id="u").sessions] == ["s"]
        sessions.delete_session_sync(app_name="x", user_id="u", session_id="s")
        assert sessions.get_session_sync(app_name="x", user_id="u", session_id="s") is None
        root_agent = Agent(name="a", model=ScriptedModel(["done"]))
        context = InvocationContext(session_service=sessions, invocation_id="e-1", agent=root_agent, session=made)
        assert context.session_service is sessions
    """,
    "artifacts by name": """
        async def save(tool_context: ToolContext) -> list[str]:
            await tool_context.save_artifact("a.txt", types.Part.from_text(text="x"))
            service = tool_context._invocation_context.artifact_service
            keys = await service.list_artifact_keys(app_name="InMemoryRunner", user_id="ada", session_id=tool_context.session.id)
            assert keys == ["a.txt"]
            return keys
        root_agent = Agent(name="a", model=ScriptedModel([call("save"), "done"]), tools=[save])
    """,
    "message parts as text": """
        assert types.UserContent("hi").parts == [types.Part("hi")]
        assert types.Content(parts=[types.Part("a")]).to_json_dict() == {"parts": [{"text": "a"}]}
        root_agent = Agent(name="a", model=ScriptedModel(["done"]), static_instruction=types.Content(parts=[{"text": "Be brief."}]))
    """,
}


def load(source: str) -> dict[str, Any]:
    module = sys.modules["adk_agent"] = ModuleType("adk_agent")
    exec(HEAD + textwrap.dedent(source), vars(module))
    return vars(module)


@pytest.mark.parametrize("name", AGENTS)
async def test_an_agent_of_adk_loads_and_takes_a_turn(name: str) -> None:
    names = load(AGENTS[name])
    runner = InMemoryRunner(app=names["app"]) if "app" in names else InMemoryRunner(agent=names["root_agent"])
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="ada")
    message = types.Content(role="user", parts=[types.Part(text="hi")])
    events = [event async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message)]
    final = [event.content.text() for event in events if event.is_final_response() and event.content is not None]
    assert final == ["done"]
    if "check" in names:
        names["check"]()
    if "EXPECTED_STATE" in names:
        stored = await runner.session_service.get_session(
            app_name=runner.app_name, user_id="ada", session_id=session.id
        )
        assert stored is not None
        assert stored.state == names["EXPECTED_STATE"]


def test_a_runner_runs_without_an_event_loop() -> None:
    names = load(AGENTS["a plugin"])
    runner = InMemoryRunner(app=names["app"])
    assert (runner.app, runner.app_name, InMemoryRunner(names["root_agent"]).app_name) == (
        names["app"],
        "app",
        "InMemoryRunner",
    )
    assert runner.plugin_manager is not None
    sessions: Any = runner.session_service
    session = sessions.create_session_sync(app_name="app", user_id="ada")
    events = runner.run(user_id="ada", session_id=session.id, new_message=types.UserContent("hi"))
    assert iter(events) is events
    assert [event.content.text() for event in events if event.content] == ["done"]
    failing = InMemoryRunner(
        agent=load('root_agent = Agent(name="a", model=ScriptedModel([RuntimeError("no")]))')["root_agent"]
    )
    with pytest.raises(ValueError, match="Session not found"):
        list(failing.run(user_id="ada", session_id="s", new_message=types.UserContent("hi")))


def test_required_fields_are_asked_for() -> None:
    names = load(AGENTS["an agent with a Field, private attributes and a config"])
    with pytest.raises(TypeError, match="needs: writer"):
        names["Story"](name="x")
    with pytest.raises(TypeError, match="no field"):
        names["Story"](name="x", writer=names["writer"], _count=2)
    with pytest.raises(ValueError, match="parent_agent"):
        names["writer"].clone(update={"parent_agent": None})
