"""Against a small server that speaks BigQuery's REST API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from google.oauth2 import service_account  # pyright: ignore[reportMissingTypeStubs]
from google.oauth2.credentials import Credentials  # pyright: ignore[reportMissingTypeStubs]
from starlette.responses import JSONResponse

from greenroom import BigQueryCredentialsConfig, BigQueryToolConfig, BigQueryToolset, WriteMode
from greenroom.agents.llm_agent import LlmAgent
from greenroom.testing.scripted_model import ScriptedModel
from greenroom.tools.login.credential_provider import PENDING
from tests.credentials.authorization_server import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.credentials.desk import call, consent, requests_of, responses_of, say, serve
from tests.tools.google_api.server import GoogleServer, Json, refusal
from tests.tools.google_cloud.bigquery_server import RESULTS, BigQuery
from tests.tools.google_cloud.declarations import BY_ADK, declared_parameters
from tests.tools.one_call import call_once, calls_in_a_run, offered

API = "/bigquery/v2/projects/p-1"


def toolset(google: GoogleServer, config: BigQueryToolConfig | None = None, **options: Any) -> BigQueryToolset:
    given: Json = {
        "credentials_config": BigQueryCredentialsConfig(credentials=Credentials(token="token-1")),
        "bigquery_tool_config": config,
        **options,
    }
    return BigQueryToolset(bigquery_url=google.url, dataplex_url=google.url, analytics_url=google.url, **given)


async def ask(
    google: GoogleServer, name: str, args: Json, config: BigQueryToolConfig | None = None, **options: Any
) -> Any:
    response = (await call_once(toolset(google, config, **options), name, {"project_id": "p-1", **args})).response
    return response.get("result", response)


async def sql(google: GoogleServer, query: str, config: BigQueryToolConfig | None = None, **args: Any) -> Json:
    return await ask(google, "execute_sql", {"query": query, **args}, config)


def table_rows(schema: list[Json], *rows: list[Any], **more: Any) -> Json:
    wire_rows = [{"f": [{"v": value} for value in row]} for row in rows]
    return {"jobComplete": True, "schema": {"fields": schema}, "rows": wire_rows, **more}


async def test_the_tools_are_declared_as_in_adk() -> None:
    assert await declared_parameters(BigQueryToolset()) == BY_ADK["BigQueryToolset"]


async def test_metadata_are_read(google: GoogleServer) -> None:
    dataset = {"datasetReference": {"projectId": "p-1", "datasetId": "sales"}, "location": "EU"}
    table = {"tableReference": {"tableId": "orders"}, "schema": {"fields": []}, "numRows": "7"}
    job = {"jobReference": {"jobId": "j-1"}, "status": {"state": "DONE"}}
    google.answers[f"GET {API}/datasets/sales"] = dataset
    google.answers[f"GET {API}/datasets/sales/tables"] = {"tables": [table]}
    google.answers[f"GET {API}/datasets/sales/tables/orders"] = table
    google.answers[f"GET {API}/jobs/j-1"] = job

    assert await ask(google, "get_dataset_info", {"dataset_id": "sales"}) == dataset
    assert google.last.headers["authorization"] == "Bearer token-1"
    assert await ask(google, "list_table_ids", {"dataset_id": "sales"}) == ["orders"]
    assert await ask(google, "get_table_info", {"dataset_id": "sales", "table_id": "orders"}) == table
    assert await ask(google, "get_job_info", {"job_id": "j-1"}, BigQueryToolConfig(location="EU")) == job
    assert google.last.query == [("location", "EU")]


async def test_all_pages_of_a_list_are_read(google: GoogleServer) -> None:
    def page(seen: Any) -> Any:
        token = dict(seen.query).get("pageToken")
        names = {None: ["a", "b"], "next": ["c"]}[token]
        datasets = [{"datasetReference": {"datasetId": name}} for name in names]
        more = {} if token else {"nextPageToken": "next"}
        return JSONResponse({"datasets": datasets, **more})

    google.answers[f"GET {API}/datasets"] = page
    assert await ask(google, "list_dataset_ids", {}) == ["a", "b", "c"]


@pytest.mark.parametrize("dataset", ["a/../../x", "..", "a?b=c", ""])
async def test_an_id_does_not_lead_to_another_path(google: GoogleServer, dataset: str) -> None:
    found = await ask(google, "get_dataset_info", {"dataset_id": dataset})
    assert found["status"] == "ERROR"
    assert all(path.startswith(f"GET {API}/datasets/a%") for path in google.calls())


async def test_rows_are_json_values_by_the_names_of_the_columns(google: GoogleServer) -> None:
    BigQuery(google)
    schema: list[Json] = [
        {"name": "n", "type": "INTEGER"},
        {"name": "f", "type": "FLOAT"},
        {"name": "inf", "type": "FLOAT"},
        {"name": "b", "type": "BOOLEAN"},
        {"name": "s", "type": "STRING"},
        {"name": "t", "type": "TIMESTAMP"},
        {"name": "dt", "type": "DATETIME"},
        {"name": "d", "type": "DATE"},
        {"name": "num", "type": "NUMERIC"},
        {"name": "j", "type": "JSON"},
        {"name": "none", "type": "INTEGER"},
        {"name": "tags", "type": "STRING", "mode": "REPEATED"},
        {"name": "r", "type": "RECORD", "fields": [{"name": "x", "type": "INTEGER"}]},
    ]
    row: list[Any] = [
        "7", "1.5", "Infinity", "true", "text", "1704067200000001", "2024-01-01T10:00:00", "2024-01-01", "1.10",
        '{"a": [1]}', None, [{"v": "a"}, {"v": "b"}], {"f": [{"v": "3"}]},
    ]  # fmt: skip
    google.answers[RESULTS] = table_rows(schema, row)
    assert await sql(google, "SELECT * FROM d.t") == {
        "status": "SUCCESS",
        "rows": [
            {
                "n": 7, "f": 1.5, "inf": "Infinity", "b": True, "s": "text", "t": "2024-01-01 00:00:00.000001+00:00",
                "dt": "2024-01-01 10:00:00", "d": "2024-01-01", "num": "1.10", "j": {"a": [1]}, "none": None,
                "tags": ["a", "b"], "r": {"x": 3},
            }
        ],
    }  # fmt: skip


async def test_more_rows_than_the_limit_are_left_out(google: GoogleServer) -> None:
    BigQuery(google)
    asked: list[Json] = []

    def page(seen: Any) -> Any:
        query = dict(seen.query)
        asked.append(query)
        if len(asked) == 1:
            return JSONResponse({"jobComplete": False})
        first = 0 if "pageToken" not in query else 2
        rows = [[str(first)], [str(first + 1)]]
        return JSONResponse(table_rows([{"name": "n", "type": "INTEGER"}], *rows, pageToken="more"))

    google.answers[RESULTS] = page
    assert await sql(google, "SELECT n FROM d.t", BigQueryToolConfig(max_query_result_rows=3)) == {
        "status": "SUCCESS",
        "rows": [{"n": 0}, {"n": 1}, {"n": 2}],
        "result_is_likely_truncated": True,
    }
    assert [(one["maxResults"], one.get("pageToken")) for one in asked] == [("3", None), ("3", None), ("1", "more")]
    assert asked[0]["location"] == "EU"


@pytest.mark.parametrize(
    "query", ["DELETE FROM d.t WHERE true", "CREATE TEMP TABLE x AS SELECT 1", "SELECT 1; DROP TABLE d.t"]
)
async def test_only_select_is_executed_when_writes_are_blocked(google: GoogleServer, query: str) -> None:
    bigquery = BigQuery(google)
    refused = await sql(google, query)
    assert refused["status"] == "ERROR"
    assert "Only SELECT statements are allowed" in refused["error_details"]
    assert await sql(google, "WITH a AS (SELECT 1) SELECT * FROM a") == {"status": "SUCCESS", "rows": []}
    assert bigquery.executed == ["WITH a AS (SELECT 1) SELECT * FROM a"]


async def test_temporary_tables_are_allowed_when_writes_are_protected(google: GoogleServer) -> None:
    bigquery = BigQuery(google)
    queries = ["CREATE TEMP TABLE x AS SELECT 1", "SELECT * FROM x", "DELETE FROM d.t", "SELECT 1; DROP TABLE d.t"]
    calls = [("execute_sql", {"project_id": "p-1", "query": query}) for query in queries]
    made = await calls_in_a_run(toolset(google, BigQueryToolConfig(write_mode=WriteMode.PROTECTED)), *calls)

    assert [response["status"] for response in made.responses] == ["SUCCESS", "SUCCESS", "ERROR", "ERROR"]
    assert "temporary tables" in made.responses[2]["error_details"]
    assert bigquery.executed == queries[:2]
    assert bigquery.sessions == 1
    properties = [job["configuration"]["query"].get("connectionProperties") for job in bigquery.inserted[1:]]
    assert {json.dumps(one) for one in properties} == {'[{"key": "session_id", "value": "bq-session-1"}]'}


async def test_a_conversation_has_a_session_of_its_own_that_its_state_does_not_name(google: GoogleServer) -> None:
    bigquery = BigQuery(google)
    shared = toolset(google, BigQueryToolConfig(write_mode=WriteMode.PROTECTED))
    query = ("execute_sql", {"project_id": "p-1", "query": "SELECT 1"})
    made = await calls_in_a_run(shared, query, state={"bigquery_session_info": ["bq-session-9", "d"]})
    assert made.response["status"] == "SUCCESS"
    assert "bq-session" not in str(made.state).replace("bq-session-9", "")
    properties = [job["configuration"]["query"].get("connectionProperties") for job in bigquery.inserted]
    assert "bq-session-9" not in str(properties)
    assert "bq-session-1" in str(properties)


async def test_every_statement_is_executed_when_writes_are_allowed(google: GoogleServer) -> None:
    bigquery = BigQuery(google)
    config = BigQueryToolConfig(write_mode=WriteMode.ALLOWED)
    assert (await sql(google, "DELETE FROM d.t WHERE true", config))["status"] == "SUCCESS"
    assert bigquery.executed == ["DELETE FROM d.t WHERE true"]
    assert len(bigquery.inserted) == 1


@pytest.mark.parametrize("mode", list(WriteMode))
async def test_a_dry_run_executes_nothing(google: GoogleServer, mode: WriteMode) -> None:
    bigquery = BigQuery(google)
    found = await sql(google, "SELECT 1", BigQueryToolConfig(write_mode=mode), dry_run=True)
    assert found["dry_run_info"]["statistics"]["totalBytesProcessed"] == "10"
    assert bigquery.executed == []


async def test_the_settings_go_into_each_job(google: GoogleServer) -> None:
    bigquery = BigQuery(google)
    key = "projects/p/locations/eu/keyRings/r/cryptoKeys/k"
    config = BigQueryToolConfig(
        maximum_bytes_billed=20_000_000,
        application_name="desk",
        location="EU",
        job_labels={"team": "a"},
        kms_key_name=key,
    )
    await sql(google, "SELECT 1", config)
    dry, real = bigquery.inserted
    assert dry["configuration"]["dryRun"] is True
    assert real["jobReference"]["location"] == "EU"
    assert real["configuration"]["labels"] == {
        "team": "a",
        "adk-bigquery-tool": "execute_sql",
        "adk-bigquery-application-name": "desk",
    }
    assert real["configuration"]["query"]["maximumBytesBilled"] == "20000000"
    assert real["configuration"]["query"]["destinationEncryptionConfiguration"] == {"kmsKeyName": key}
    assert google.last.headers["user-agent"].endswith("(tool: execute_sql) desk")


async def test_queries_are_executed_in_the_allowed_project_only(google: GoogleServer) -> None:
    bigquery = BigQuery(google)
    for name, args in [
        ("execute_sql", {"query": "SELECT 1"}),
        ("forecast", {"history_data": "SELECT 1", "timestamp_col": "t", "data_col": "v"}),
    ]:
        refused = await ask(google, name, args, BigQueryToolConfig(compute_project_id="other"))
        assert "only in 'other'" in refused["error_details"]
    assert bigquery.inserted == []


async def test_a_default_project_and_dataset_need_not_be_given(google: GoogleServer) -> None:
    google.answers[f"GET {API}/datasets/sales"] = {"id": "p-1:sales"}
    config = BigQueryToolConfig(default_project_id="p-1", default_dataset_id="sales")
    tools = await offered(toolset(google, config))
    schema = tools["get_dataset_info"]._get_declaration().parameters_json_schema  # type: ignore[union-attr]
    assert schema is not None
    assert schema["required"] == []
    assert schema["properties"]["dataset_id"]["default"] == "sales"
    assert (await call_once(toolset(google, config), "get_dataset_info", {})).response == {"id": "p-1:sales"}
    assert (await call_once(toolset(google, config), "get_dataset_info", {"dataset_id": "x"})).response[
        "status"
    ] == "ERROR"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (WriteMode.BLOCKED, "Only SELECT"),
        (WriteMode.PROTECTED, "CREATE TEMP TABLE"),
        (WriteMode.ALLOWED, "can't be undone"),
    ],
)
async def test_the_model_is_told_what_it_may_write(google: GoogleServer, mode: WriteMode, words: str) -> None:
    tools = await offered(toolset(google, BigQueryToolConfig(write_mode=mode)))
    assert words in tools["execute_sql"].description


FORECAST = {"history_data": "d.sales", "timestamp_col": "day", "data_col": "total", "horizon": 7, "id_cols": ["shop"]}


async def test_a_forecast_is_a_query(google: GoogleServer) -> None:
    bigquery = BigQuery(google)
    assert (await ask(google, "forecast", FORECAST))["status"] == "SUCCESS"
    assert bigquery.executed == [
        "SELECT * FROM AI.FORECAST(TABLE `d.sales`, data_col => 'total', timestamp_col => 'day', "
        "model => 'TimesFM 2.0', horizon => 7, confidence_level => 0.95, id_cols => ['shop'])"
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"history_data": "d.sales`; DROP TABLE d.t"},
        {"history_data": "SELECT 1; DROP TABLE d.t"},
        {"data_col": "total', x => 'y"},
        {"timestamp_col": ""},
        {"id_cols": ["shop']"]},
    ],
)
async def test_names_that_would_change_the_query_are_refused(google: GoogleServer, change: Json) -> None:
    bigquery = BigQuery(google)
    assert (await ask(google, "forecast", {**FORECAST, **change}))["status"] == "ERROR"
    assert bigquery.executed == []


CONTRIBUTION = {
    "input_data": "SELECT * FROM d.sales",
    "contribution_metric": "SUM(it's)",
    "dimension_id_cols": ["shop"],
    "is_test_col": "is_test",
}
ANOMALIES = {
    "history_data": "d.sales",
    "times_series_timestamp_col": "day",
    "times_series_data_col": "total",
    "times_series_id_cols": ["shop"],
    "target_data": "d.new",
}


@pytest.mark.parametrize("mode", [WriteMode.PROTECTED, WriteMode.ALLOWED])
async def test_analyses_make_a_temporary_model_in_a_session(google: GoogleServer, mode: WriteMode) -> None:
    bigquery = BigQuery(google)
    config = BigQueryToolConfig(write_mode=mode)
    assert (await ask(google, "analyze_contribution", CONTRIBUTION, config))["status"] == "SUCCESS"
    create, read = bigquery.executed
    assert create.startswith("CREATE TEMP MODEL contribution_analysis_model_")
    assert "CONTRIBUTION_METRIC = 'SUM(it\\'s)'" in create
    assert create.endswith("AS SELECT * FROM d.sales")
    assert read.startswith("SELECT * FROM ML.GET_INSIGHTS(MODEL contribution_analysis_model_")
    bigquery.executed.clear()

    assert (await ask(google, "detect_anomalies", ANOMALIES, config))["status"] == "SUCCESS"
    create, read = bigquery.executed
    assert "TIME_SERIES_ID_COL = ['shop']" in create
    assert create.endswith("AS SELECT * FROM `d.sales`")
    assert "STRUCT(0.95 AS anomaly_prob_threshold), (SELECT * FROM `d.new`)) ORDER BY `shop`, `day`" in read


@pytest.mark.parametrize(("name", "args"), [("analyze_contribution", CONTRIBUTION), ("detect_anomalies", ANOMALIES)])
async def test_analyses_are_refused_when_writes_are_blocked(google: GoogleServer, name: str, args: Json) -> None:
    bigquery = BigQuery(google)
    assert "temporary model" in (await ask(google, name, args))["error_details"]
    assert bigquery.executed == []


async def test_the_catalog_is_searched(google: GoogleServer) -> None:
    entry = {
        "name": "e-1",
        "entryType": "bigquery-table",
        "updateTime": "2024-01-01T00:00:00Z",
        "entrySource": {"displayName": "orders", "resource": "//bigquery/t", "description": "All.", "location": "eu"},
    }
    google.answers["POST /v1/projects/p-1/locations/global:searchEntries"] = {"results": [{"dataplexEntry": entry}]}
    args = {"prompt": "orders", "dataset_ids_filter": ["sales"], "types_filter": ["TABLE"]}
    found = await ask(google, "search_catalog", args)
    assert found["results"][0]["display_name"] == "orders"
    assert dict(google.last.query) == {
        "query": '(orders) AND (projectid="p-1") AND '
        '(linked_resource:"//bigquery.googleapis.com/projects/p-1/datasets/sales/*") AND (type="TABLE") '
        "AND system=BIGQUERY",
        "pageSize": "10",
        "semanticSearch": "true",
    }


async def test_questions_are_answered_with_the_newest_table(google: GoogleServer) -> None:
    table = {"schema": {"fields": [{"name": "n"}]}, "data": [{"n": 1}, {"n": 2}, {"n": 3}]}
    google.answers["POST /v1/projects/p-1/locations/global:chat"] = [
        {"systemMessage": {"data": {"result": table}}},
        {"systemMessage": {"data": {"generatedSql": "SELECT 1"}}},
        {"systemMessage": {"data": {"result": table}}},
        {"systemMessage": {"text": {"parts": ["Three."]}}},
    ]
    tables = [{"projectId": "p-1", "datasetId": "d", "tableId": "t"}]
    args = {"user_query_with_context": "How many?", "table_references": tables}
    found = await ask(google, "ask_data_insights", args, BigQueryToolConfig(max_query_result_rows=2))
    assert found["response"] == [
        {"Data Retrieved": "Intermediate result omitted"},
        {"data": {"generatedSql": "SELECT 1"}},
        {"Data Retrieved": {"headers": ["n"], "rows": [[1], [2]], "summary": "Showing the first 2 of 3 rows."}},
        {"text": {"parts": ["Three."]}},
    ]
    assert google.last.body["inlineContext"]["datasourceReferences"] == {"bq": {"tableReferences": tables}}


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "PERMISSION_DENIED", "Access Denied: Dataset p-1:sales"),
        (403, "quotaExceeded", "Quota exceeded: Your project exceeded quota for free query bytes scanned"),
        (404, "NOT_FOUND", "Not found: Dataset p-1:sales"),
        (429, "RESOURCE_EXHAUSTED", "Exceeded rate limits"),
    ],
)
async def test_a_refusal_is_a_result_for_the_model(google: GoogleServer, status: int, code: str, message: str) -> None:
    google.answers[f"GET {API}/datasets/sales"] = refusal(status, code, message)
    refused = await ask(google, "get_dataset_info", {"dataset_id": "sales"})
    assert refused == {"status": "ERROR", "error_details": f"{status} {code}: {message}"}


async def test_an_invalid_query_is_a_result_for_the_model(google: GoogleServer) -> None:
    BigQuery(google)
    refused = await sql(google, "nonsense")
    assert refused["error_details"] == "400 INVALID_ARGUMENT: Syntax error: Unexpected identifier at [1:1]"


async def test_a_filter_chooses_the_tools(google: GoogleServer) -> None:
    chosen = ["list_dataset_ids", "execute_sql"]
    assert list(await offered(toolset(google, tool_filter=chosen))) == chosen


async def test_a_user_logs_in_and_the_query_is_executed(
    google: GoogleServer, provider: AuthorizationServer, tmp_path: Path
) -> None:
    BigQuery(google)
    google.tokens = provider.tokens.__contains__
    config = BigQueryCredentialsConfig(
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        authorization_url=f"{provider.url}/authorize",
        token_url=f"{provider.url}/token",
    )
    tools = toolset(google, credentials_config=config)
    query = call("execute_sql", project_id="p-1", query="SELECT 1")
    agent = LlmAgent(name="desk", model=ScriptedModel([query, "Done."]), tools=[tools])

    async with serve(agent, tmp_path) as server:
        await server.new_session("desk")
        events = await say(server, "How many?")
        (request,) = requests_of(events)
        assert responses_of(events) == [PENDING]
        assert CLIENT_SECRET not in json.dumps(events)
        assert "auth%2Fbigquery" in request["args"]["authConfig"]["exchangedAuthCredential"]["oauth2"]["authUri"]
        assert responses_of(await say(server, await consent(request))) == [{"status": "SUCCESS", "rows": []}]


async def test_a_revoked_login_is_refreshed_or_asked_for_again(
    google: GoogleServer, provider: AuthorizationServer, tmp_path: Path
) -> None:
    google.answers[f"GET {API}/datasets"] = {}
    google.tokens = provider.tokens.__contains__
    config = BigQueryCredentialsConfig(
        client_id=CLIENT_ID,
        client_secret=CLIENT_SECRET,
        authorization_url=f"{provider.url}/authorize",
        token_url=f"{provider.url}/token",
    )
    listing = [call("list_dataset_ids", f"c-{number}", project_id="p-1") for number in range(3)]
    script = [listing[0], "None.", listing[1], "None.", listing[2], "None."]
    agent = LlmAgent(name="desk", model=ScriptedModel(script), tools=[toolset(google, credentials_config=config)])

    async with serve(agent, tmp_path) as server:
        await server.new_session("desk")
        (request,) = requests_of(await say(server, "Which datasets?"))
        assert responses_of(await say(server, await consent(request))) == [{"result": []}]

        provider.tokens.clear()
        assert responses_of(await say(server, "And now?")) == [{"result": []}]
        assert provider.grants == ["authorization_code", "refresh_token"]

        provider.tokens.clear()
        provider.refreshable.clear()
        (request,) = requests_of(await say(server, "And now?"))
        assert responses_of(await say(server, await consent(request))) == [{"result": []}]


async def test_a_refused_service_account_is_an_error_after_one_new_token(google: GoogleServer) -> None:
    google.tokens = {"other"}.__contains__
    account = service_account.Credentials.from_service_account_info(google.service_account(), scopes=["s"])  # pyright: ignore
    config = BigQueryCredentialsConfig(credentials=account)
    refused = await ask(google, "list_dataset_ids", {}, credentials_config=config)
    assert refused["error_details"].startswith("401 UNAUTHENTICATED")
    assert google.calls() == ["POST /token", f"GET {API}/datasets"] * 2


async def test_the_token_may_be_in_the_state(google: GoogleServer) -> None:
    google.answers[f"GET {API}/datasets"] = {}
    config = BigQueryCredentialsConfig(external_access_token_key="my_token")
    listing = ("list_dataset_ids", {"project_id": "p-1"})
    made = await calls_in_a_run(toolset(google, credentials_config=config), listing, state={"my_token": "t-7"})
    assert made.response == {"result": []}
    assert google.last.headers["authorization"] == "Bearer t-7"
    made = await calls_in_a_run(toolset(google, credentials_config=config), listing)
    assert "'my_token'" in made.response["error_details"]


async def test_without_a_configuration_the_machines_credentials_are_used(
    google: GoogleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.json"
    key.write_text(json.dumps(google.service_account()))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    google.answers[f"GET {API}/datasets"] = {}
    assert await ask(google, "list_dataset_ids", {}, credentials_config=None) == []
    assert google.last.headers["authorization"] == "Bearer sa-token"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"maximum_bytes_billed": 5}, "10485760"),
        ({"application_name": "a b"}, "blanks"),
        ({"kms_key_name": "key"}, "Cloud KMS"),
        ({"job_labels": {"adk-bigquery-x": "y"}}, "reserved"),
        ({"job_labels": {str(n): "" for n in range(21)}}, "at most 20"),
        ({"default_project_id": "a", "compute_project_id": "b"}, "differs"),
        ({"write_mode": "sometimes"}, "WriteMode"),
    ],
)
def test_invalid_settings_are_refused(given: Json, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BigQueryToolConfig(**given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"client_id": "c"},
        {"credentials": Credentials(token="t"), "client_id": "c"},
        {"external_access_token_key": "k", "scopes": ["s"]},
    ],
)
def test_credentials_are_of_one_kind(given: Json) -> None:
    with pytest.raises(ValueError, match="external_access_token_key"):
        BigQueryCredentialsConfig(**given)
