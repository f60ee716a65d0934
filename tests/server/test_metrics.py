"""The numbers at `GET /metrics`, after real runs, as Prometheus's own parser reads them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from greenroom.records.answer_metadata import GenerateContentResponseUsageMetadata
from greenroom.records.content import Content, FunctionCall, Part
from greenroom.records.model_exchange import LlmRequest, LlmResponse
from greenroom.records.session import SessionKey
from greenroom.server.access.api_key_file import ApiKeyFile
from greenroom.server.settings import AuthSettings
from greenroom.telemetry.agent_spans import ToolCallSpan
from greenroom.telemetry.run_metrics import (
    METRICS,
    OF_DATABASE,
    OF_DISK,
    OTHER,
    RUN_SECONDS,
    RUNS,
    TOOL_CALLS,
    RunMetrics,
)
from greenroom.telemetry.span import Trace
from greenroom.version import __version__
from tests.server.agents import Gate, HeldModel, asking_echo, echo, gated, scripted
from tests.server.conftest import Serve, Store
from tests.server.serving import Serving, run_body, until

Samples = dict[str, float]

BUILD = f"greenroom_build_info{{version={__version__}}}"


async def scrape(server: Serving, **headers: str) -> Samples:
    """Each sample by its name and labels."""
    reply = await server.client.get("/metrics", headers={name.replace("_", "-"): headers[name] for name in headers})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    families = list(text_string_to_metric_families(reply.text))
    kinds = {family.name: family.type for family in families}
    metrics = [metric for metric in METRICS if metric not in (*OF_DATABASE, *OF_DISK)]
    assert kinds == {metric.name.removesuffix("_total"): metric.kind for metric in metrics}
    samples = [sample for family in families for sample in family.samples]
    found = {
        sample.name
        + "{"
        + ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
        + "}": sample.value
        for sample in samples
    }
    assert len(found) == len(samples)
    return found


def counters(samples: Samples) -> Samples:
    return {name: value for name, value in samples.items() if "_total{" in name}


def get_weather(city: str) -> dict[str, Any]:
    """Weather of a city."""
    if city == "nowhere":
        raise LookupError(city)
    return {"temp": 18}


def calls_then(*calls: FunctionCall) -> Callable[[LlmRequest], Any]:
    """Makes the calls, and says something when they are answered. Each reply costs 10 tokens in and 5 out."""

    def answer(request: LlmRequest) -> LlmResponse:
        parts = request.contents[-1].parts or []
        is_answered = any(part.function_response is not None for part in parts)
        said = [Part(text="done")] if is_answered or not calls else [Part(function_call=call) for call in calls]
        usage = GenerateContentResponseUsageMetadata(
            prompt_token_count=7, tool_use_prompt_token_count=3, candidates_token_count=4, thoughts_token_count=1
        )
        return LlmResponse(content=Content(role="model", parts=said), usage_metadata=usage)

    return answer


async def test_a_fresh_server_has_all_metrics_and_no_numbers(server: Serving) -> None:
    assert await scrape(server) == {BUILD: 1}


async def test_runs_their_calls_and_tokens_are_counted(serve: Serve) -> None:
    weather = scripted(
        "weather",
        calls_then(FunctionCall(name="get_weather", args={"city": "Oslo"}), FunctionCall(name="made_up")),
        tools=[get_weather],
        model="small",
    )
    server = await serve(weather, echo())
    await server.new_session("weather")
    await server.new_session("echo")
    for _ in range(2):
        assert (await server.run("weather")).status_code == 200

    await server.sse("echo", streaming=True)
    samples = await scrape(server)
    assert counters(samples) == {
        "greenroom_runs_total{app=weather,status=succeeded}": 2,
        "greenroom_runs_total{app=echo,status=succeeded}": 1,
        "greenroom_model_calls_total{app=weather,model=small}": 4,
        "greenroom_model_calls_total{app=echo,model=scripted}": 1,
        "greenroom_model_input_tokens_total{app=weather,model=small}": 40,
        "greenroom_model_output_tokens_total{app=weather,model=small}": 20,
        "greenroom_tool_calls_total{app=weather,tool=get_weather}": 2,
        "greenroom_tool_calls_total{app=weather,tool=(unknown)}": 2,
        "greenroom_tool_errors_total{app=weather,error=ToolNotFound,tool=(unknown)}": 2,
    }
    assert not [name for name in samples if "ann" in name or "s-1" in name]


async def test_the_cost_of_calls_is_counted_by_the_table_of_prices(serve: Serve, tmp_path: Path) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text(
        'currency = "EUR"\n[models]\n"priced" = { input = 1000, output = 2000, cached_input = 100 }\n', "utf-8"
    )

    def answer(_: LlmRequest) -> LlmResponse:
        usage = GenerateContentResponseUsageMetadata(
            prompt_token_count=10, candidates_token_count=5, cached_content_token_count=4
        )
        return LlmResponse(content=Content(role="model", parts=[Part(text="hi")]), usage_metadata=usage)

    agents = [scripted(name, answer, model=name) for name in ("priced", "unknown")]
    server = await serve(*agents, prices=str(prices))
    for session in ("one", "two"):
        await server.new_session("priced", session=session)
        assert (await server.run("priced", sessionId=session)).status_code == 200
    await server.new_session("unknown")
    assert (await server.run("unknown")).status_code == 200

    samples = await scrape(server)
    costs = {name: value for name, value in samples.items() if "cost" in name}
    assert costs == {
        "greenroom_model_cost_total{app=priced,currency=EUR,model=priced}": pytest.approx(
            2 * (6 * 1000 + 4 * 100 + 5 * 2000) / 1e6
        )
    }
    assert samples["greenroom_model_cached_tokens_total{app=priced,model=priced}"] == 8


@pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
async def test_requests_that_wait_for_an_answer_are_counted(serve: Serve) -> None:
    server = await serve(asking_echo())
    for session in ("one", "two"):
        await server.new_session("echo", session=session)
        assert (await server.run("echo", "ask me", sessionId=session)).status_code == 200

    text = (await server.client.get("/metrics")).text
    assert 'greenroom_requests_open{app="echo"} 2.0' in text
    listed = (await server.client.get("/requests")).json()["requests"]
    answer = {"response": {"result": "yes"}}
    reply = await server.client.post(f"/requests/{listed[0]['id']}/answer", json=answer)
    assert reply.status_code < 300, reply.text
    assert 'greenroom_requests_open{app="echo"} 1.0' in (await server.client.get("/metrics")).text


@pytest.mark.parametrize("store", ["sqlite", "replicas"])
async def test_the_size_of_the_database_is_shown(serve: Serve, store: Store) -> None:
    server = await serve()
    families = list(text_string_to_metric_families((await server.client.get("/metrics")).text))
    sizes = {family.name: family.samples[0].value for family in families if family.name.endswith("_bytes")}
    names = {"greenroom_database_bytes"} | ({"greenroom_disk_free_bytes"} if store == "sqlite" else set())
    assert sizes.keys() == names
    assert sizes["greenroom_database_bytes"] > 4096


async def test_what_fails_is_counted_by_its_class(serve: Serve) -> None:
    def burn(request: LlmRequest) -> Any:
        raise TimeoutError("secret")

    tool = scripted("tool", calls_then(FunctionCall(name="get_weather", args={"city": "nowhere"})), tools=[get_weather])
    server = await serve(tool, scripted("model", burn, model="hot"))
    for app in ("tool", "model"):
        await server.new_session(app)
        assert (await server.run(app)).status_code >= 500
    samples = await scrape(server)
    assert samples["greenroom_runs_total{app=tool,status=failed}"] == 1
    assert samples["greenroom_runs_total{app=model,status=failed}"] == 1
    assert samples["greenroom_tool_errors_total{app=tool,error=LookupError,tool=get_weather}"] == 1
    [error] = [name for name in samples if name.startswith("greenroom_model_errors_total{app=model,")]
    assert samples[error] == 1
    assert "secret" not in str(samples)


async def test_times_are_those_of_the_run_and_of_its_first_word(serve: Serve) -> None:
    model = HeldModel("one two")
    agent = scripted("held", "unused")
    agent.model = model
    server = await serve(agent)
    await server.new_session("held")
    connection = await server.connect()
    await connection.post("/run_sse", run_body("held", streaming=True))
    model.let_go(1)
    await connection.head()
    await connection.chunk()
    model.let_go()
    await connection.chunks()
    samples = await scrape(server)

    for name in ("greenroom_run_duration_seconds", "greenroom_first_reply_seconds"):
        assert samples[f"{name}_count{{app=held}}"] == 1
        buckets = {
            float(key.rpartition("le=")[2][:-1]): samples[key] for key in samples if key.startswith(f"{name}_bucket{{")
        }
        least = next(bound for bound, count in sorted(buckets.items()) if count)
        assert samples[f"{name}_sum{{app=held}}"] <= least
        assert buckets[math.inf] == 1
        assert list(buckets.values()) == sorted(buckets.values())

    first, whole = (samples[f"greenroom_{name}_seconds_sum{{app=held}}"] for name in ("first_reply", "run_duration"))
    assert 0 < first < whole


async def test_runs_going_on_and_in_line_are_shown_while_they_are(serve: Serve) -> None:
    gate = Gate()
    server = await serve(gated(gate))
    await server.new_session("gated")

    runs: list[str] = []
    for _ in range(3):
        path = "/apps/gated/users/ann/sessions/s-1/runs"
        reply = await server.client.post(path, json={"newMessage": {"parts": [{"text": "hi"}]}})
        runs.append(reply.json()["id"])

    await until(lambda: gate.entered > 0)
    samples = await scrape(server)
    assert samples == {BUILD: 1, "greenroom_runs_running{app=gated}": 1, "greenroom_runs_queued{app=gated}": 2}
    await server.client.post(f"/runs/{runs[1]}/cancel")  # it never got its turn
    assert (await scrape(server))["greenroom_runs_queued{app=gated}"] == 1
    await server.client.post(f"/runs/{runs[0]}/cancel")
    gate.open()
    await server.wait_for_status(runs[2], "succeeded")
    samples = await scrape(server)
    assert counters(samples) == {
        "greenroom_runs_total{app=gated,status=cancelled}": 2,
        "greenroom_runs_total{app=gated,status=succeeded}": 1,
        "greenroom_model_calls_total{app=gated,model=scripted}": 3,
        "greenroom_tool_calls_total{app=gated,tool=wait_at_gate}": 2,
    }
    assert samples["greenroom_run_duration_seconds_count{app=gated}"] == 2
    assert not [name for name in samples if name.startswith(("greenroom_runs_running", "greenroom_runs_queued"))]


async def test_who_is_bound_to_apps_sees_their_numbers_only(serve: Serve, tmp_path: Path) -> None:
    keys = ApiKeyFile(tmp_path / "keys.db")

    def key(*scopes: str, apps: list[str] | None = None) -> str:
        return keys.create(name="", subject="ann", scopes=scopes, apps=apps)[1]

    user = key("run", "read")
    watcher = key("debug")
    bound = key("debug", apps=["echo"])
    server = await serve(echo(), echo("other"), auth=AuthSettings(keys=str(keys.path)))
    server.client.headers["x-api-key"] = user
    for app in ("echo", "other"):
        await server.new_session(app)
        assert (await server.run(app)).status_code == 200

    refused = await server.client.get("/metrics")
    assert refused.status_code == 403
    assert "greenroom_" not in refused.text
    del server.client.headers["x-api-key"]
    assert (await server.client.get("/metrics")).status_code == 401
    both = await scrape(server, x_api_key=watcher)
    assert {name for name in both if "_runs_total" in name} == {
        "greenroom_runs_total{app=echo,status=succeeded}",
        "greenroom_runs_total{app=other,status=succeeded}",
    }
    one = await scrape(server, x_api_key=bound)
    assert one == {name: value for name, value in both.items() if "app=echo" in name or name == BUILD}


async def test_without_the_package_the_answer_names_the_extra(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)  # as if it could not be found
    server = await serve()
    await server.new_session("echo")
    assert (await server.run("echo")).status_code == 200
    reply = await server.client.get("/metrics")
    assert reply.status_code == 501
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["code"] == "MissingExtra"
    assert "greenroom[telemetry]" in reply.json()["detail"]


def test_labels_do_not_grow_without_end() -> None:
    metrics = RunMetrics(max_series=3)
    for number in range(5):
        trace = Trace(SessionKey(f"app{number}", "ann", "s-1"), f"run{number}")
        root = trace.begin()
        ToolCallSpan(root, FunctionCall(name="look"), description="", kind="FunctionTool").end()
        root.end()
        trace.end("succeeded", [metrics])
    assert metrics.series[RUNS] == {**{(f"app{number}", "succeeded"): [1] for number in range(3)}, (OTHER, OTHER): [2]}
    assert metrics.series[TOOL_CALLS] == {**{(f"app{number}", "look"): [1] for number in range(3)}, (OTHER, OTHER): [2]}
    assert {labels: sum(values[:-1]) for labels, values in metrics.series[RUN_SECONDS].items()} == {
        **{(f"app{number}",): 1 for number in range(3)},
        (OTHER,): 2,
    }
