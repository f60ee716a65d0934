"""Against a small server that speaks Spanner's REST API."""

from __future__ import annotations

from typing import Any

import pytest
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from starlette.responses import JSONResponse

from greenroom import (
    Capabilities,
    QueryResultMode,
    SpannerAdminToolset,
    SpannerCredentialsConfig,
    SpannerToolset,
    SpannerToolSettings,
    SpannerVectorStoreSettings,
    TableColumn,
)
from tests.tools.google_api.server import GoogleServer, Json, refusal
from tests.tools.google_cloud.declarations import BY_ADK, declared_parameters
from tests.tools.google_cloud.spanner_server import DATABASE, Spanner, result
from tests.tools.one_call import call_once, offered

IDS: Json = {"project_id": "p-1", "instance_id": "i-1", "database_id": "d-1"}
STORE: Json = {
    **IDS,
    "table_name": "docs",
    "content_column": "text",
    "embedding_column": "vector",
    "vector_length": 2,
    "vertex_ai_embedding_model_name": "text-embedding-005",
}


def credentials() -> SpannerCredentialsConfig:
    return SpannerCredentialsConfig(credentials=Credentials(token="t-1"))


async def ask(google: GoogleServer, name: str, args: Json, **settings: Any) -> Json:
    toolset = SpannerToolset(
        credentials_config=credentials(),
        spanner_tool_settings=SpannerToolSettings(**settings),
        base_url=google.url,
    )
    return (await call_once(toolset, f"spanner_{name}", args)).response


async def ask_admin(google: GoogleServer, name: str, args: Json) -> Json:
    toolset = SpannerAdminToolset(credentials_config=credentials(), base_url=google.url)
    return (await call_once(toolset, f"spanner_{name}", args)).response


async def sql(google: GoogleServer, query: str, **settings: Any) -> Json:
    return await ask(google, "execute_sql", {**IDS, "query": query}, **settings)


async def test_the_tools_are_declared_as_in_adk() -> None:
    assert await declared_parameters(SpannerToolset()) == BY_ADK["SpannerToolset"]
    assert await declared_parameters(SpannerAdminToolset()) == BY_ADK["SpannerAdminToolset"]


async def test_the_settings_choose_the_tools() -> None:
    without_data = await offered(SpannerToolset(spanner_tool_settings=SpannerToolSettings(capabilities=[])))
    assert "spanner_get_table_schema" in without_data
    assert "spanner_execute_sql" not in without_data

    store = SpannerToolSettings(vector_store_settings=SpannerVectorStoreSettings(**STORE))
    assert "spanner_vector_store_similarity_search" in await offered(SpannerToolset(spanner_tool_settings=store))

    assert list(await offered(SpannerToolset(tool_filter=["execute_sql"]))) == ["spanner_execute_sql"]


async def test_rows_are_json_values(google: GoogleServer) -> None:
    spanner = Spanner(google)
    struct = {"code": "STRUCT", "structType": {"fields": [{"name": "x", "type": {"code": "INT64"}}]}}
    spanner.results["FROM t"] = result(
        [
            ("n", "INT64"),
            ("f", "FLOAT64"),
            ("nan", "FLOAT32"),
            ("b", "BOOL"),
            ("s", "STRING"),
            ("at", "TIMESTAMP"),
            ("price", "NUMERIC"),
            ("j", "JSON"),
            ("none", "INT64"),
            ("numbers", {"code": "ARRAY", "arrayElementType": {"code": "INT64"}}),
            ("structs", {"code": "ARRAY", "arrayElementType": struct}),
        ],
        ["7", 1.5, "NaN", True, "x", "2024-01-01T00:00:00Z", "1.10", '{"a": [1]}', None, ["1", None], [["3"]]],
    )
    values = [7, 1.5, "NaN", True, "x", "2024-01-01T00:00:00Z", "1.10", {"a": [1]}, None, [1, None], [[3]]]
    assert await sql(google, "SELECT * FROM t") == {"status": "SUCCESS", "rows": [values]}
    assert google.seen[1].headers["authorization"] == "Bearer t-1"
    assert spanner.open_sessions == set()


async def test_rows_can_be_maps_and_more_than_the_limit_are_left_out(google: GoogleServer) -> None:
    spanner = Spanner(google)
    spanner.results["FROM t"] = result([("n", "INT64"), ("", "STRING")], ["1", "a"], ["2", "b"], ["3", "c"])
    settings: Json = {"query_result_mode": QueryResultMode.DICT_LIST, "max_executed_query_result_rows": 2}
    assert await sql(google, "SELECT n, '' FROM t", **settings) == {
        "status": "SUCCESS",
        "rows": [{"n": 1, "": "a"}, {"n": 2, "": "b"}],
        "result_is_likely_truncated": True,
    }
    assert "result_is_likely_truncated" not in await sql(google, "SELECT n, '' FROM t")

    toolset = SpannerToolset(spanner_tool_settings=SpannerToolSettings(**settings))
    assert "map by the names" in (await offered(toolset))["spanner_execute_sql"].description


async def test_nothing_can_be_written(google: GoogleServer) -> None:
    spanner = Spanner(google)
    refused = await sql(google, "DELETE FROM t WHERE true")
    assert "read-write transaction" in refused["error_details"]
    assert [query["transaction"] for query in spanner.queries] == [{"singleUse": {"readOnly": {"strong": True}}}]
    assert spanner.open_sessions == set()


async def test_sessions_have_the_role_of_the_settings(google: GoogleServer) -> None:
    spanner = Spanner(google)
    spanner.results["FROM t"] = result([("n", "INT64")])
    spanner.results["SCHEMATA"] = result([("SCHEMA_NAME", "STRING")], ["sales"])
    assert await sql(google, "SELECT n FROM t", database_role="reader") == {"status": "SUCCESS", "rows": []}
    listed = await ask(google, "list_named_schemas", IDS, database_role="reader")
    assert listed == {"status": "SUCCESS", "results": ["sales"]}
    assert spanner.sessions == [{"creatorRole": "reader"}] * 2


async def test_a_session_that_can_not_be_deleted_does_not_hide_the_rows(google: GoogleServer) -> None:
    spanner = Spanner(google)
    spanner.results["FROM t"] = result([("n", "INT64")], ["1"])
    spanner.delete = lambda seen: refusal(503, "UNAVAILABLE", "Try again")
    assert (await sql(google, "SELECT n FROM t"))["rows"] == [[1]]


async def test_tables_are_listed_by_schema(google: GoogleServer) -> None:
    spanner = Spanner(google)
    spanner.results["information_schema.tables"] = result([("table_name", "STRING")], ["orders"], ["users"])
    assert await ask(google, "list_table_names", IDS) == {"status": "SUCCESS", "results": ["orders", "users"]}
    assert spanner.queries[-1]["params"] == {"schema": ""}
    await ask(google, "list_table_names", {**IDS, "named_schema": "sales"})
    assert spanner.queries[-1]["params"] == {"schema": "sales"}
    assert spanner.queries[-1]["paramTypes"] == {"schema": {"code": "STRING"}}

    spanner.dialect = "POSTGRESQL"
    await ask(google, "list_table_names", IDS)
    assert "$1" in spanner.queries[-1]["sql"]
    assert spanner.queries[-1]["params"] == {"p1": "public"}


async def test_a_table_is_described_with_its_keys(google: GoogleServer) -> None:
    spanner = Spanner(google)
    spanner.results["INFORMATION_SCHEMA.COLUMNS"] = result(
        [("COLUMN_NAME", "STRING"), ("SPANNER_TYPE", "STRING"), ("ORDINAL_POSITION", "INT64")],
        ["id", "INT64", "1"],
        ["name", "STRING(MAX)", "2"],
    )
    spanner.results["KEY_COLUMN_USAGE"] = result(
        [("COLUMN_NAME", "STRING"), ("CONSTRAINT_NAME", "STRING")], ["id", "PK_orders"], ["gone", "FK"]
    )
    spanner.results["INFORMATION_SCHEMA.TABLES"] = result([("TABLE_NAME", "STRING")], ["orders"])
    found = await ask(google, "get_table_schema", {**IDS, "table_name": "orders"})
    assert found["results"] == {
        "schema": {
            "id": {
                "SPANNER_TYPE": "INT64",
                "ORDINAL_POSITION": 1,
                "KEY_COLUMN_USAGE": [{"CONSTRAINT_NAME": "PK_orders"}],
            },
            "name": {"SPANNER_TYPE": "STRING(MAX)", "ORDINAL_POSITION": 2},
        },
        "metadata": [{"TABLE_NAME": "orders"}],
    }
    assert {str(query["params"]) for query in spanner.queries} == {"{'table': 'orders', 'schema': ''}"}


async def test_indexes_are_listed(google: GoogleServer) -> None:
    spanner = Spanner(google)
    spanner.results["INFORMATION_SCHEMA.INDEXES"] = result(
        [("INDEX_NAME", "STRING"), ("IS_UNIQUE", "BOOL"), ("INDEX_STATE", "STRING")], ["PRIMARY_KEY", True, None]
    )
    spanner.results["INDEX_COLUMNS"] = result([("COLUMN_NAME", "STRING"), ("ORDINAL_POSITION", "INT64")], ["id", "1"])
    table = {**IDS, "table_id": "x'; DROP TABLE t"}
    indexes = await ask(google, "list_table_indexes", table)
    assert indexes["results"] == [{"INDEX_NAME": "PRIMARY_KEY", "IS_UNIQUE": True, "INDEX_STATE": None}]
    columns = await ask(google, "list_table_index_columns", table)
    assert columns["results"] == [{"COLUMN_NAME": "id", "ORDINAL_POSITION": 1}]
    assert all("DROP" not in query["sql"] for query in spanner.queries)


@pytest.mark.parametrize("name", ["list_table_indexes", "list_table_index_columns", "get_table_schema"])
async def test_tables_of_postgresql_are_not_described(google: GoogleServer, name: str) -> None:
    spanner = Spanner(google, dialect="POSTGRESQL")
    key = "table_name" if name == "get_table_schema" else "table_id"
    refused = await ask(google, name, {**IDS, key: "orders"})
    assert "PostgreSQL" in refused["error_details"]
    assert spanner.queries == []
    assert spanner.open_sessions == set()


async def test_a_refusal_and_an_invalid_id_are_results_for_the_model(google: GoogleServer) -> None:
    google.answers[f"POST /v1/{DATABASE}/sessions"] = refusal(403, "PERMISSION_DENIED", "Not allowed")
    assert await sql(google, "SELECT 1") == {
        "status": "ERROR",
        "error_details": "403 PERMISSION_DENIED: Not allowed",
    }
    refused = await ask(google, "execute_sql", {**IDS, "database_id": "..", "query": "SELECT 1"})
    assert "not an id" in refused["error_details"]


SEARCH: Json = {
    **IDS,
    "table_name": "products",
    "query": "tools",
    "embedding_column_to_search": "vector",
    "columns": ["name", "`unit price`"],
    "embedding_options": {"spanner_googlesql_embedding_model_name": "Embedder"},
}
VECTOR = {"code": "ARRAY", "arrayElementType": {"code": "FLOAT64"}}


def searched(google: GoogleServer, **options: Any) -> Spanner:
    spanner = Spanner(google, **options)
    spanner.results["PREDICT"] = result([("values", VECTOR)], [[0.5, 0.25]])
    spanner.results["FROM products"] = result([("name", "STRING"), ("distance", "FLOAT64")], ["saw", 0.1])
    return spanner


async def test_nearest_rows_are_found_by_an_embedding_of_the_database(google: GoogleServer) -> None:
    spanner = searched(google)
    found = await ask(google, "similarity_search", {**SEARCH, "additional_filter": "price < 100 OR is_free"})
    assert found == {"status": "SUCCESS", "rows": [["saw", 0.1]]}
    embedded, query = spanner.queries
    assert embedded["params"] == {"query": "tools"}
    assert "MODEL Embedder" in embedded["sql"]
    assert query["params"] == {"embedding": [0.5, 0.25]}
    assert query["sql"] == (
        "SELECT name, `unit price`, COSINE_DISTANCE(vector, @embedding) AS distance FROM products "
        "WHERE (price < 100 OR is_free) ORDER BY distance LIMIT 4"
    )


async def test_nearest_rows_are_found_by_an_index(google: GoogleServer) -> None:
    spanner = searched(google)
    options = {
        "nearest_neighbors_algorithm": "APPROXIMATE_NEAREST_NEIGHBORS",
        "distance_type": "DOT_PRODUCT",
        "top_k": "2",
        "num_leaves_to_search": 10,
    }
    await ask(google, "similarity_search", {**SEARCH, "additional_filter": "a = 1 OR b = 2", "search_options": options})
    assert spanner.queries[-1]["sql"] == (
        "SELECT name, `unit price`, APPROX_DOT_PRODUCT(vector, @embedding, "
        """options => JSON '{"num_leaves_to_search": 10}') AS distance FROM products """
        "WHERE vector IS NOT NULL AND (a = 1 OR b = 2) ORDER BY distance DESC LIMIT 2"
    )


async def test_nearest_rows_are_found_in_postgresql(google: GoogleServer) -> None:
    spanner = searched(google, dialect="POSTGRESQL")
    endpoint = "projects/p/locations/eu/publishers/google/models/text-embedding-005"
    options = {
        "spanner_postgresql_vertex_ai_embedding_model_endpoint": endpoint,
        "output_dimensionality": "2",
    }
    args = {**SEARCH, "embedding_options": options, "search_options": {"distance_type": "EUCLIDEAN"}}
    assert (await ask(google, "similarity_search", args))["rows"] == [["saw", 0.1]]
    embedded, query = spanner.queries
    assert f"ML_PREDICT_ROW('{endpoint}'" in embedded["sql"]
    assert "'outputDimensionality', 2" in embedded["sql"]
    assert embedded["params"] == {"p1": "tools"}
    assert "spanner.euclidean_distance(vector, $1) AS distance" in query["sql"]
    assert query["params"] == {"p1": [0.5, 0.25]}


async def test_the_vector_store_is_searched_with_an_embedding_of_vertex_ai(
    google: GoogleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_API_KEY", "k")
    monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", google.url)
    spanner = Spanner(google)
    spanner.results["FROM docs"] = result([("text", "STRING"), ("distance", "FLOAT64")], ["How to saw.", 0.1])
    model = "POST /v1/models/text-embedding-005:batchEmbedContents"
    google.answers[model] = {"embeddings": [{"values": [3.0, 4.0]}]}
    store = SpannerVectorStoreSettings(**STORE, additional_filter="LENGTH(text) > 3", top_k=2)
    found = await ask(google, "vector_store_similarity_search", {"query": "sawing"}, vector_store_settings=store)
    assert found == {"status": "SUCCESS", "rows": [["How to saw.", 0.1]]}
    assert spanner.queries[-1]["params"] == {"embedding": [3.0, 4.0]}
    assert spanner.queries[-1]["sql"] == (
        "SELECT text, COSINE_DISTANCE(vector, @embedding) AS distance FROM docs WHERE (LENGTH(text) > 3) "
        "ORDER BY distance LIMIT 2"
    )
    (asked,) = [seen for seen in google.seen if seen.call == model]
    assert asked.body["requests"][0]["outputDimensionality"] == 2


@pytest.mark.parametrize(
    "change",
    [
        {"table_name": "products; DROP TABLE t"},
        {"table_name": "a.`b`.c d"},
        {"embedding_column_to_search": "vector) OR (1"},
        {"columns": ["name", "(SELECT secret FROM t)"]},
        {"columns": [""]},
        {"embedding_options": {"spanner_googlesql_embedding_model_name": "m, (SELECT 1)"}},
        {"embedding_options": {}},
        {
            "embedding_options": {
                "vertex_ai_embedding_model_name": "m",
                "spanner_googlesql_embedding_model_name": "m",
            }
        },
        {"embedding_options": {"spanner_postgresql_vertex_ai_embedding_model_endpoint": "x'"}},
        {
            "embedding_options": {
                "spanner_googlesql_embedding_model_name": "m",
                "output_dimensionality": "3",
            }
        },
        {"search_options": {"top_k": "many"}},
        {"search_options": {"top_k": 0}},
        {"search_options": {"distance_type": "MANHATTAN"}},
        {"search_options": {"nearest_neighbors_algorithm": "BEST"}},
        {"search_options": {"num_leaves_to_search": "1}'"}},
    ],
)
async def test_invalid_searches_are_refused_before_a_query(google: GoogleServer, change: Json) -> None:
    spanner = searched(google)
    assert (await ask(google, "similarity_search", {**SEARCH, **change}))["status"] == "ERROR"
    assert spanner.sessions == []


async def test_a_model_of_the_other_dialect_is_refused(google: GoogleServer) -> None:
    spanner = searched(google, dialect="POSTGRESQL")
    refused = await ask(google, "similarity_search", SEARCH)
    assert "PostgreSQL dialect" in refused["error_details"]
    assert spanner.queries == []


@pytest.mark.parametrize(
    "text",
    [
        "price < 100",
        "price<=-1.5 and name LIKE 'a%' Or `unit price` != 3",
        "shop.price BETWEEN 1 AND 5 AND kind NOT IN ('x', 'y', NULL)",
        "is_free",
        "a IS NOT NULL AND (b IS TRUE OR (c <> 'd' AND 1 = 1))",
        "name NOT LIKE 'x' AND n NOT BETWEEN 1 AND 2",
    ],
)
async def test_comparisons_with_constants_are_filters(google: GoogleServer, text: str) -> None:
    spanner = searched(google)
    assert (await ask(google, "similarity_search", {**SEARCH, "additional_filter": text}))["status"] == "SUCCESS"
    assert f"({text})" in spanner.queries[-1]["sql"]


@pytest.mark.parametrize(
    "text",
    [
        "price < (SELECT 1)",
        "LENGTH(name) > 3",
        "price < 100 -- more",
        "price < 100; DROP TABLE t",
        "price < 100 /* x */",
        "price < 100) UNION ALL (SELECT 1",
        "name = 'a\\' OR 1=1'",
        'name = "text"',
        "price = cost",
        "price + 1 = 2",
        "price < 100 #",
        "name IN ()",
        "name IN ('a'",
        "price BETWEEN 1 OR 2",
        "price NOT",
        "AND price < 1",
        "price <",
        "5x = 1",
        "(" * 20 + "a = 1" + ")" * 20,
        "name = 'a' 'b'",
    ],
)
async def test_other_filters_are_refused(google: GoogleServer, text: str) -> None:
    spanner = searched(google)
    refused = await ask(google, "similarity_search", {**SEARCH, "additional_filter": text})
    assert "filter" in refused["error_details"]
    assert spanner.sessions == []


INSTANCE = "/v1/projects/p-1/instances/i-1"


async def test_instances_and_databases_are_listed_and_described(google: GoogleServer) -> None:
    config = "projects/p-1/instanceConfigs/regional-eu"
    google.answers["GET /v1/projects/p-1/instances"] = {"instances": [{"name": "projects/p-1/instances/i-1"}]}
    google.answers[f"GET {INSTANCE}"] = {
        "name": "projects/p-1/instances/i-1",
        "displayName": "One",
        "config": config,
        "nodeCount": 1,
        "processingUnits": 1000,
    }
    google.answers[f"GET {INSTANCE}/databases"] = {"databases": [{"name": DATABASE}]}
    google.answers["GET /v1/projects/p-1/instanceConfigs"] = {"instanceConfigs": [{"name": config}]}
    google.answers[f"GET /v1/{config}"] = {
        "name": config,
        "displayName": "EU",
        "replicas": [{"location": "eu-1", "type": "READ_WRITE", "defaultLeaderLocation": True}, {"location": "eu-2"}],
    }
    project = {"project_id": "p-1"}
    assert (await ask_admin(google, "list_instances", project))["results"] == ["i-1"]
    assert (await ask_admin(google, "list_instance_configs", project))["results"] == ["regional-eu"]
    databases = await ask_admin(google, "list_databases", {**project, "instance_id": "i-1"})
    assert databases["results"] == ["d-1"]
    instance = await ask_admin(google, "get_instance", {**project, "instance_id": "i-1"})
    assert instance["results"] == {
        "instance_id": "i-1",
        "display_name": "One",
        "config": config,
        "node_count": 1,
        "processing_units": 1000,
        "labels": {},
    }
    described = await ask_admin(google, "get_instance_config", {**project, "config_id": "regional-eu"})
    assert described["results"] == {
        "name": config,
        "display_name": "EU",
        "replicas": [
            {"location": "eu-1", "type": "READ_WRITE", "default_leader_location": True},
            {"location": "eu-2", "type": "TYPE_UNSPECIFIED", "default_leader_location": False},
        ],
        "labels": {},
    }


async def test_creations_are_waited_for(google: GoogleServer) -> None:
    operation = f"{INSTANCE}/operations/o-1"
    states: list[Json] = [{"name": operation.removeprefix("/v1/")}] * 2
    states.append({"name": operation.removeprefix("/v1/"), "done": True, "response": {}})
    google.answers[f"POST {INSTANCE}/databases"] = states[0]
    google.answers[f"GET {operation}"] = lambda seen: JSONResponse(states.pop(1))
    made = await ask_admin(google, "create_database", IDS)
    assert made == {"status": "SUCCESS"}
    assert google.seen[0].body == {"createStatement": "CREATE DATABASE `d-1`"}
    assert google.calls()[1:] == [f"GET {operation}"] * 2

    google.answers["POST /v1/projects/p-1/instances"] = {
        "name": "projects/p-1/instances/i-1/operations/o-2",
        "done": True,
        "error": {"code": 8, "message": "Quota exceeded"},
    }
    args = {"project_id": "p-1", "instance_id": "i-1", "config_id": "regional-eu", "display_name": "One", "nodes": 2}
    failed = await ask_admin(google, "create_instance", args)
    assert "Quota exceeded" in failed["error_details"]
    assert google.last.body == {
        "instanceId": "i-1",
        "instance": {
            "displayName": "One",
            "config": "projects/p-1/instanceConfigs/regional-eu",
            "nodeCount": 2,
        },
    }


@pytest.mark.parametrize("database", ["a", "D-1", "d`; DROP", "1d", "d-", "d" * 31])
async def test_an_invalid_name_of_a_database_is_refused(google: GoogleServer, database: str) -> None:
    refused = await ask_admin(google, "create_database", {**IDS, "database_id": database})
    assert "id of a database" in refused["error_details"]
    assert google.seen == []


@pytest.mark.parametrize(
    "change",
    [
        {"vector_length": 0},
        {"nearest_neighbors_algorithm": "BEST"},
        {"primary_key_columns": ["id"]},
    ],
)
def test_invalid_settings_of_a_vector_store_are_refused(change: Json) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        SpannerVectorStoreSettings(**{**STORE, **change})


def test_settings_of_a_vector_store_describe_its_table() -> None:
    column = TableColumn(name="id", type="INT64", is_nullable=False)
    store = SpannerVectorStoreSettings(**STORE, additional_columns_to_setup=[column], primary_key_columns=["id"])
    assert store.selected_columns == ["text"]
    assert SpannerToolSettings(capabilities=[Capabilities.DATA_READ]).can_read_data
