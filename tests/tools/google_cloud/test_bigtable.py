"""Against a small server that speaks Bigtable's REST APIs."""

from __future__ import annotations

from typing import Any

import pytest
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]

from greenroom import BigtableCredentialsConfig, BigtableToolset, BigtableToolSettings
from tests.tools.google_api.server import GoogleServer, Json, refusal
from tests.tools.google_cloud.bigtable_server import batch, prepared, serialized, value
from tests.tools.google_cloud.declarations import BY_ADK, declared_parameters
from tests.tools.one_call import call_once

INSTANCE = "/v2/projects/p-1/instances/i-1"
IDS: Json = {"project_id": "p-1", "instance_id": "i-1"}
BYTES: Json = {"bytesType": {}}
INT: Json = {"int64Type": {}}


async def ask(google: GoogleServer, name: str, args: Json, **settings: Any) -> Json:
    toolset = BigtableToolset(
        credentials_config=BigtableCredentialsConfig(credentials=Credentials(token="t-1")),
        bigtable_tool_settings=BigtableToolSettings(**settings),
        base_url=google.url,
        admin_url=google.url,
    )
    return (await call_once(toolset, f"bigtable_{name}", args)).response


async def sql(google: GoogleServer, query: str, settings: Json | None = None, **args: Any) -> Json:
    return await ask(google, "execute_sql", {**IDS, "query": query, **args}, **(settings or {}))


def answer(google: GoogleServer, columns: Json, *parts: Json) -> None:
    google.answers[f"POST {INSTANCE}:prepareQuery"] = prepared(**columns)
    google.answers[f"POST {INSTANCE}:executeQuery"] = list(parts)


async def test_the_tools_are_declared_as_in_adk() -> None:
    assert await declared_parameters(BigtableToolset()) == BY_ADK["BigtableToolset"]


async def test_instances_and_tables_are_listed_and_described(google: GoogleServer) -> None:
    instance = {"name": "projects/p-1/instances/i-1", "displayName": "One", "state": "READY", "type": "PRODUCTION"}
    table = "projects/p-1/instances/i-1/tables/t-1"
    google.answers["GET /v2/projects/p-1/instances"] = {"instances": [instance]}
    google.answers[f"GET {INSTANCE}"] = {**instance, "labels": {"env": "test"}}
    google.answers[f"GET {INSTANCE}/tables"] = {"tables": [{"name": table}]}
    google.answers[f"GET {INSTANCE}/tables/t-1"] = {"name": table, "columnFamilies": {"cf1": {}, "cf2": {}}}

    described = {
        "project_id": "p-1",
        "instance_id": "i-1",
        "display_name": "One",
        "state": "READY",
        "type": "PRODUCTION",
        "labels": {},
    }
    listed = await ask(google, "list_instances", {"project_id": "p-1"})
    assert listed == {"status": "SUCCESS", "results": [described]}
    assert google.last.headers["authorization"] == "Bearer t-1"
    found = await ask(google, "get_instance_info", IDS)
    assert found["results"] == {**described, "labels": {"env": "test"}}
    tables = await ask(google, "list_tables", IDS)
    assert tables["results"] == [{**IDS, "table_id": "t-1", "table_name": table}]
    found = await ask(google, "get_table_info", {**IDS, "table_id": "t-1"})
    assert found["results"] == {**IDS, "table_id": "t-1", "column_families": ["cf1", "cf2"]}
    assert google.last.query == [("view", "SCHEMA_VIEW")]


async def test_clusters_are_listed_and_described(google: GoogleServer) -> None:
    cluster = {
        "name": "projects/p-1/instances/i-1/clusters/c-1",
        "location": "projects/p-1/locations/us-central1-a",
        "state": "READY",
        "serveNodes": 3,
        "defaultStorageType": "SSD",
    }
    scaling = {
        "autoscalingLimits": {"minServeNodes": 1, "maxServeNodes": 10},
        "autoscalingTargets": {"cpuUtilizationPercent": 80},
    }
    google.answers[f"GET {INSTANCE}/clusters"] = {"clusters": [cluster]}
    google.answers[f"GET {INSTANCE}/clusters/c-1"] = {
        **cluster,
        "clusterConfig": {"clusterAutoscalingConfig": scaling},
    }
    described = {
        **IDS,
        "cluster_id": "c-1",
        "state": "READY",
        "serve_nodes": 3,
        "default_storage_type": "SSD",
        "location_id": "us-central1-a",
    }
    listed = await ask(google, "list_clusters", IDS)
    assert listed["results"] == [{**described, "cluster_name": cluster["name"]}]
    found = await ask(google, "get_cluster_info", {**IDS, "cluster_id": "c-1"})
    assert found["results"] == {
        **described,
        "min_serve_nodes": 1,
        "max_serve_nodes": 10,
        "cpu_utilization_percent": 80,
    }


async def test_rows_are_json_values_by_the_names_of_the_columns(google: GoogleServer) -> None:
    text: Json = {"stringType": {}}
    struct: Json = {"structType": {"fields": [{"fieldName": "x", "type": INT}, {"fieldName": "y", "type": text}]}}
    columns: Json = {
        "_key": BYTES,
        "raw": BYTES,
        "n": INT,
        "big": INT,
        "f": {"float64Type": {}},
        "inf": {"float64Type": {}},
        "no": {"boolType": {}},
        "at": {"timestampType": {}},
        "before": {"timestampType": {}},
        "day": {"dateType": {}},
        "none": INT,
        "empty": text,
        "list": {"arrayType": {"elementType": INT}},
        "struct": struct,
        "cf": {"mapType": {"keyType": BYTES, "valueType": BYTES}},
        "structs": {"arrayType": {"elementType": struct}},
    }
    pair = value(array_value=[value(int_value=1), value(string_value="a")])
    entry = value(array_value=[value(bytes_value=b"name"), value(bytes_value="Zoë".encode())])
    row = [
        value(bytes_value=b"user#1"),
        value(bytes_value=b"\xff"),
        value(int_value=-7),
        value(int_value=2**62),
        value(float_value=1.5),
        value(float_value=float("inf")),
        value(bool_value=False),
        value(timestamp_value={"seconds": 1704067200, "nanos": 1000}),
        value(timestamp_value={"seconds": -1}),
        value(date_value={"year": 2024, "month": 1, "day": 2}),
        value(),
        value(string_value=""),
        value(array_value=[value(int_value=1), value()]),
        pair,
        value(array_value=[entry]),
        value(array_value=[pair]),
    ]
    answer(google, columns, batch(serialized(*row), batchChecksum=1, resumeToken="cg=="))
    assert await sql(google, "SELECT * FROM t") == {
        "status": "SUCCESS",
        "rows": [
            {
                "_key": "user#1",
                "raw": "/w==",
                "n": -7,
                "big": 2**62,
                "f": 1.5,
                "inf": "inf",
                "no": False,
                "at": "2024-01-01 00:00:00.000001+00:00",
                "before": "1969-12-31 23:59:59+00:00",
                "day": "2024-01-02",
                "none": None,
                "empty": "",
                "list": [1, None],
                "struct": {"x": 1, "y": "a"},
                "cf": {"name": "Zoë"},
                "structs": [{"x": 1, "y": "a"}],
            }
        ],
    }
    assert google.seen[0].body == {"query": "SELECT * FROM t", "protoFormat": {}}
    assert google.seen[1].body == {"preparedQuery": "cHJlcGFyZWQ=", "params": {}}


async def test_parts_of_rows_are_joined_and_repeated_parts_left_out(google: GoogleServer) -> None:
    first = serialized(*(value(int_value=n) for n in range(1000, 1003)))
    second = serialized(value(int_value=2000))
    parts = [
        batch(first[:5]),
        batch(first[5:], batchChecksum=1, resumeToken="cg=="),
        batch(second[:3]),
        batch(second, reset=True, batchChecksum=2),
    ]
    answer(google, {"n": INT}, *parts)
    found = await sql(google, "SELECT n FROM t")
    assert [row["n"] for row in found["rows"]] == [1000, 1001, 1002, 2000]

    found = await sql(google, "SELECT n FROM t", {"max_query_result_rows": 2})
    assert found == {"status": "SUCCESS", "rows": [{"n": 1000}, {"n": 1001}], "result_is_likely_truncated": True}
    assert "result_is_likely_truncated" not in await sql(google, "SELECT n FROM t", {"max_query_result_rows": 4})


async def test_a_query_without_rows_has_none(google: GoogleServer) -> None:
    answer(google, {"n": INT})
    assert await sql(google, "SELECT n FROM t") == {"status": "SUCCESS", "rows": []}


async def test_parameters_have_types(google: GoogleServer) -> None:
    answer(google, {"n": INT})
    parameters = {"s": "x", "i": 5, "f": 1.5, "b": True, "d": "2024-01-02", "raw": "eA==", "none": None}
    types = {"d": "DATE", "raw": "bytes", "none": "INT64"}
    await sql(google, "SELECT n FROM t WHERE s = @s", parameters=parameters, parameter_types=types)
    prepare, execute = (seen.body for seen in google.seen)
    assert prepare["paramTypes"] == {
        "s": {"stringType": {}},
        "i": {"int64Type": {}},
        "f": {"float64Type": {}},
        "b": {"boolType": {}},
        "d": {"dateType": {}},
        "raw": {"bytesType": {}},
        "none": {"int64Type": {}},
    }
    values = {name: {k: v for k, v in one.items() if k != "type"} for name, one in execute["params"].items()}
    assert values == {
        "s": {"stringValue": "x"},
        "i": {"intValue": "5"},
        "f": {"floatValue": 1.5},
        "b": {"boolValue": True},
        "d": {"dateValue": {"year": 2024, "month": 1, "day": 2}},
        "raw": {"bytesValue": "eA=="},
        "none": {},
    }


@pytest.mark.parametrize(
    ("parameters", "types"),
    [
        ({"p": [1]}, {}),
        ({"p": None}, {}),
        ({"p": "x"}, {"p": "INTERVAL"}),
        ({"p": "x"}, {"p": "INT64"}),
        ({"p": "yesterday"}, {"p": "DATE"}),
    ],
)
async def test_other_parameters_are_refused(google: GoogleServer, parameters: Json, types: Json) -> None:
    refused = await sql(google, "SELECT @p", parameters=parameters, parameter_types=types)
    assert "'p'" in refused["error_details"]
    assert google.seen == []


@pytest.mark.parametrize("content", [b"\x12\x05ab", b"\x12", b"\x80" * 12, b"\x13", b"\x12\x02\x5a\x09", b"\x10\x05"])
async def test_damaged_rows_are_an_error(google: GoogleServer, content: bytes) -> None:
    answer(google, {"n": INT}, batch(content))
    refused = await sql(google, "SELECT n FROM t")
    assert "can't be read" in refused["error_details"]


async def test_refusals_are_results_for_the_model(google: GoogleServer) -> None:
    google.answers[f"POST {INSTANCE}:prepareQuery"] = refusal(400, "INVALID_ARGUMENT", "Syntax error")
    assert await sql(google, "nonsense") == {
        "status": "ERROR",
        "error_details": "400 INVALID_ARGUMENT: Syntax error",
    }
    answer(google, {"n": INT}, batch(serialized(value(int_value=1))), {"error": {"code": 504, "message": "Too late"}})
    assert (await sql(google, "SELECT n FROM t"))["error_details"] == "The query failed: Too late"


@pytest.mark.parametrize("views", [{"view_parameters": {"tenant": "a"}}, {"view_parameter_names": ["user_id"]}])
def test_parameterized_views_are_refused(views: Json) -> None:
    with pytest.raises(ValueError, match="parameterized views"):
        BigtableToolset(**views)
