"""The toolset of BigQuery."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.records.tool_declaration import FunctionDeclaration
from greenroom.tools.google_cloud.bigquery import statements
from greenroom.tools.google_cloud.bigquery.config import BigQueryCredentialsConfig, BigQueryToolConfig, WriteMode
from greenroom.tools.google_cloud.bigquery.jobs import BigQueryJobs, statement_type
from greenroom.tools.google_cloud.credentials_config import BaseGoogleCredentialsConfig, Credentials
from greenroom.tools.google_cloud.data_answers import ask_with_context
from greenroom.tools.google_cloud.google_tool import GoogleTool
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, object_in, objects_in, path_of
from greenroom.tools.google_cloud.toolset import GoogleCloudToolset
from greenroom.tools.toolset import ToolPredicate

_WRITES = {
    WriteMode.BLOCKED: "Only SELECT statements are executed.",
    WriteMode.PROTECTED: "Besides SELECT, only temporary tables and models can be created, changed and dropped: "
    "write CREATE TEMP TABLE, without a dataset. They exist for this conversation.",
    WriteMode.ALLOWED: "Statements that change data or tables are executed as well, and can't be undone: before "
    "something is overwritten or deleted, make sure that the user wants it.",
}
_DEFAULTS = {"project_id": "default_project_id", "dataset_id": "default_dataset_id"}


class BigQueryToolset(GoogleCloudToolset):
    """Metadata, SQL, forecasts and analyses of BigQuery.

    credentials_config: without it the machine's own credentials are used. bigquery_tool_config: by default nothing can
    be written. bigquery_url, dataplex_url, analytics_url: of other endpoints of the APIs.
    """

    def __init__(
        self,
        *,
        tool_filter: Sequence[str] | ToolPredicate | None = None,
        credentials_config: BigQueryCredentialsConfig | None = None,
        bigquery_tool_config: BigQueryToolConfig | None = None,
        tool_name_prefix: str | None = None,
        bigquery_url: str = "https://bigquery.googleapis.com",
        dataplex_url: str = "https://dataplex.googleapis.com",
        analytics_url: str = "https://geminidataanalytics.googleapis.com",
    ) -> None:
        settings = bigquery_tool_config or BigQueryToolConfig()
        bigquery = GoogleRestApi(f"{bigquery_url.rstrip('/')}/bigquery/v2")
        catalog = GoogleRestApi(f"{dataplex_url.rstrip('/')}/v1")
        analytics = GoogleRestApi(f"{analytics_url.rstrip('/')}/v1")
        functions = _BigQueryFunctions(settings, bigquery, catalog, analytics)
        tools = [BigQueryTool(one, credentials_config, settings) for one in functions.reading()]
        tools += [
            BigQueryTool(one, credentials_config, settings, on_interrupt="report") for one in functions.executing()
        ]
        super().__init__(
            tools, [bigquery, catalog, analytics], tool_filter=tool_filter, tool_name_prefix=tool_name_prefix
        )


class BigQueryTool(GoogleTool):
    """A function with `project_id` and perhaps `dataset_id`, which the settings may give a default."""

    def __init__(
        self,
        func: Callable[..., Any],
        credentials_config: BaseGoogleCredentialsConfig | None = None,
        tool_settings: BigQueryToolConfig | None = None,
        *,
        on_interrupt: Any = "retry",
    ) -> None:
        settings = tool_settings or BigQueryToolConfig()
        description = None
        if func.__name__ == "execute_sql":
            description = f"{_summary(func)} {_WRITES[settings.write_mode]}"
        super().__init__(
            func,
            credentials_config=credentials_config,
            tool_settings=settings,
            on_interrupt=on_interrupt,
            description=description,
        )
        defaults = {name: getattr(settings, field) for name, field in _DEFAULTS.items()}
        declared = object_in(self._parameters_schema, "properties")
        self._defaults: dict[str, str] = {n: value for n, value in defaults.items() if value and n in declared}

    def _get_declaration(self) -> FunctionDeclaration:
        declaration = super()._get_declaration()
        schema = declaration.parameters_json_schema
        if schema is None or not self._defaults:
            return declaration
        properties: JsonObject = dict(schema["properties"])
        for name, default in self._defaults.items():
            properties[name] = {**properties[name], "default": default}
        required = [name for name in schema["required"] if name not in self._defaults]
        parameters = {**schema, "properties": properties, "required": required}
        return msgspec.structs.replace(declaration, parameters_json_schema=parameters)

    async def run_async(self, *, args: JsonObject, tool_context: ToolContext) -> JsonValue:
        missing = {name: default for name, default in self._defaults.items() if not args.get(name)}
        return await super().run_async(args={**args, **missing}, tool_context=tool_context)


class _BigQueryFunctions:
    """The functions of the tools. Models see their docstrings."""

    def __init__(
        self, settings: BigQueryToolConfig, api: GoogleRestApi, catalog: GoogleRestApi, analytics: GoogleRestApi
    ) -> None:
        self._settings = settings
        self._api = api
        self._catalog = catalog
        self._analytics = analytics
        self._jobs = BigQueryJobs(api, settings)

    def reading(self) -> list[Callable[..., Any]]:
        return [
            self.get_dataset_info,
            self.get_table_info,
            self.list_dataset_ids,
            self.list_table_ids,
            self.get_job_info,
        ]

    def executing(self) -> list[Callable[..., Any]]:
        return [
            self.execute_sql,
            self.forecast,
            self.analyze_contribution,
            self.detect_anomalies,
            self.ask_data_insights,
            self.search_catalog,
        ]

    async def list_dataset_ids(self, project_id: str, credentials: Credentials | None) -> list[str]:
        """Lists the ids of the BigQuery datasets of a project.

        Args:
            project_id: The Google Cloud project.
        """
        found = self._api.pages(credentials, f"projects/{path_of(project_id)}/datasets", "datasets")
        return [dataset["datasetReference"]["datasetId"] async for dataset in found]

    async def get_dataset_info(self, project_id: str, dataset_id: str, credentials: Credentials | None) -> JsonObject:
        """Returns the metadata of a BigQuery dataset: its location, description, labels, times and access.

        Args:
            project_id: The Google Cloud project of the dataset.
            dataset_id: The id of the dataset, without the project.
        """
        return await self._api.get(credentials, _dataset(project_id, dataset_id))

    async def list_table_ids(self, project_id: str, dataset_id: str, credentials: Credentials | None) -> list[str]:
        """Lists the ids of the tables and views of a BigQuery dataset.

        Args:
            project_id: The Google Cloud project of the dataset.
            dataset_id: The id of the dataset, without the project.
        """
        found = self._api.pages(credentials, f"{_dataset(project_id, dataset_id)}/tables", "tables")
        return [table["tableReference"]["tableId"] async for table in found]

    async def get_table_info(
        self, project_id: str, dataset_id: str, table_id: str, credentials: Credentials | None
    ) -> JsonObject:
        """Returns the metadata of a BigQuery table or view: its columns, number of rows, description and partitions.

        Args:
            project_id: The Google Cloud project of the dataset.
            dataset_id: The id of the dataset, without the project.
            table_id: The id of the table, without the dataset.
        """
        return await self._api.get(credentials, f"{_dataset(project_id, dataset_id)}/tables/{path_of(table_id)}")

    async def get_job_info(self, project_id: str, job_id: str, credentials: Credentials | None) -> JsonObject:
        """Returns the configuration, state and statistics of a BigQuery job, such as the bytes that a query read.

        Args:
            project_id: The Google Cloud project of the job.
            job_id: The id of the job.
        """
        path = f"projects/{path_of(project_id)}/jobs/{path_of(job_id)}"
        return await self._api.get(credentials, path, {"location": self._settings.location})

    async def execute_sql(
        self,
        project_id: str,
        query: str,
        credentials: Credentials | None,
        tool_context: ToolContext,
        dry_run: bool = False,
    ) -> JsonObject:
        """Executes a statement in BigQuery's SQL, BigQuery ML included, and returns the rows of the result.

        Args:
            project_id: The Google Cloud project that the query is executed in and billed to.
            query: One statement in GoogleSQL.
            dry_run: Only checks the statement, and returns how BigQuery would execute it and how many bytes it would
                read.
        """
        return await self._jobs.execute(
            project_id,
            query,
            caller="execute_sql",
            credentials=credentials,
            tool_context=tool_context,
            dry_run=dry_run,
        )

    async def forecast(
        self,
        project_id: str,
        history_data: str,
        timestamp_col: str,
        data_col: str,
        horizon: int = 10,
        id_cols: list[str] | None = None,
        *,
        credentials: Credentials | None,
        tool_context: ToolContext,
    ) -> JsonObject:
        """Forecasts a time series with BigQuery's AI.FORECAST. The rows hold the values with prediction intervals.

        Args:
            project_id: The Google Cloud project that the query is executed in and billed to.
            history_data: The known values: the full id of a table, project.dataset.table, or a SELECT statement.
            timestamp_col: The column with the time of each value.
            data_col: The column with the values.
            horizon: How many points in time to forecast.
            id_cols: The columns that distinguish the time series, if there are several.
        """
        await self._check_source(project_id, history_data, "forecast", credentials)
        query = statements.forecast(history_data, timestamp_col, data_col, horizon, id_cols or ())
        return await self._jobs.execute(
            project_id, query, caller="forecast", credentials=credentials, tool_context=tool_context
        )

    async def analyze_contribution(
        self,
        project_id: str,
        input_data: str,
        contribution_metric: str,
        dimension_id_cols: list[str],
        is_test_col: str,
        credentials: Credentials | None,
        tool_context: ToolContext,
        top_k_insights: int = 30,
        pruning_method: str = "PRUNE_REDUNDANT_INSIGHTS",
    ) -> JsonObject:
        """Finds which segments of the data contribute most to a change, with BigQuery ML's contribution analysis.

        Args:
            project_id: The Google Cloud project that the queries are executed in and billed to.
            input_data: Test and control data: the full id of a table, project.dataset.table, or a SELECT statement.
            contribution_metric: What is analyzed: SUM(a), SUM(a)/SUM(b) or SUM(a)/COUNT(DISTINCT c), of columns.
            dimension_id_cols: The columns that make the segments.
            is_test_col: The BOOL column that is true for test data and false for control data.
            top_k_insights: How many insights to return at most, those of most support first.
            pruning_method: PRUNE_REDUNDANT_INSIGHTS or NO_PRUNING.
        """
        model = _model_name("contribution_analysis")
        await self._check_source(project_id, input_data, "analyze_contribution", credentials)
        create = statements.contribution_model(
            model, input_data, contribution_metric, dimension_id_cols, is_test_col, top_k_insights, pruning_method
        )
        return await self._with_model(
            project_id, create, statements.insights(model), "analyze_contribution", credentials, tool_context
        )

    async def detect_anomalies(
        self,
        project_id: str,
        history_data: str,
        times_series_timestamp_col: str,
        times_series_data_col: str,
        horizon: int | None = 1000,
        target_data: str | None = None,
        times_series_id_cols: list[str] | None = None,
        anomaly_prob_threshold: float | None = 0.95,
        *,
        credentials: Credentials | None,
        tool_context: ToolContext,
    ) -> JsonObject:
        """Finds anomalies in a time series with an ARIMA_PLUS model of BigQuery ML.

        Args:
            project_id: The Google Cloud project that the queries are executed in and billed to.
            history_data: The known values: the full id of a table, project.dataset.table, or a SELECT statement.
            times_series_timestamp_col: The column with the time of each value.
            times_series_data_col: The column with the values.
            horizon: How many points in time the model forecasts.
            target_data: The values to look for anomalies in, if not the known ones: a table or a SELECT statement.
            times_series_id_cols: The columns that distinguish the time series, if there are several.
            anomaly_prob_threshold: From which probability on a value is an anomaly, between 0 and 1.
        """
        model = _model_name("detect_anomalies")
        for source in (history_data, target_data):
            if source:
                await self._check_source(project_id, source, "detect_anomalies", credentials)
        ids = times_series_id_cols or ()
        points = 1000 if horizon is None else horizon
        threshold = 0.95 if anomaly_prob_threshold is None else anomaly_prob_threshold
        create = statements.anomaly_model(
            model, history_data, times_series_timestamp_col, times_series_data_col, points, ids
        )
        query = statements.anomalies(model, threshold, target_data, times_series_timestamp_col, ids)
        return await self._with_model(project_id, create, query, "detect_anomalies", credentials, tool_context)

    async def ask_data_insights(
        self,
        project_id: str,
        user_query_with_context: str,
        table_references: list[dict[str, str]],
        credentials: Credentials | None,
    ) -> JsonObject:
        """Answers a question about the data of BigQuery tables, with Google's Conversational Analytics.

        Args:
            project_id: The Google Cloud project that the question is asked in and billed to.
            user_query_with_context: The question, with what is needed of the conversation to understand it.
            table_references: The tables, each with projectId, datasetId and tableId.
        """
        sources: JsonObject = {"bq": {"tableReferences": table_references}}
        answers = await ask_with_context(
            self._analytics,
            credentials,
            project_id,
            user_query_with_context,
            sources,
            max_rows=self._settings.max_query_result_rows,
        )
        return {"status": "SUCCESS", "response": answers}

    async def search_catalog(
        self,
        prompt: str,
        project_id: str,
        credentials: Credentials | None,
        location: str | None = None,
        page_size: int = 10,
        project_ids_filter: list[str] | None = None,
        dataset_ids_filter: list[str] | None = None,
        types_filter: list[str] | None = None,
    ) -> JsonObject:
        """Searches Google Cloud's data catalog for BigQuery datasets, tables and views by their meaning.

        Args:
            prompt: What is searched for, in words.
            project_id: The Google Cloud project to search in.
            location: The location of the catalog; global by default.
            page_size: How many results to return at most.
            project_ids_filter: Search in these projects instead.
            dataset_ids_filter: Only in datasets of these ids.
            types_filter: Only entries of these types, such as TABLE, VIEW and DATASET.
        """
        projects = project_ids_filter or [project_id]
        conditions = [f"({prompt})"] if prompt else []
        conditions.append(_any_of(f'projectid="{project}"' for project in projects))
        if dataset_ids_filter:
            conditions.append(
                _any_of(
                    f'linked_resource:"//bigquery.googleapis.com/projects/{project}/datasets/{dataset}/*"'
                    for project in projects
                    for dataset in dataset_ids_filter
                )
            )
        if types_filter:
            conditions.append(_any_of(f'type="{kind}"' for kind in types_filter))
        conditions.append("system=BIGQUERY")

        where = path_of("projects", project_id, "locations", location or self._settings.location or "global")
        query = {"query": " AND ".join(conditions), "pageSize": page_size, "semanticSearch": True}
        found = await self._catalog.call("POST", credentials, f"{where}:searchEntries", query)
        results = [_entry(result) for result in objects_in(found, "results")]
        return {"status": "SUCCESS", "results": results}

    async def _check_source(self, project_id: str, source: str, caller: str, credentials: Credentials | None) -> None:
        """Raises ToolError unless the source is a table's id or one SELECT statement."""
        self._jobs.check_project(project_id)
        if not statements.is_query(source):
            statements.table_of(source)
            return
        job = await self._jobs.dry_run(project_id, source, caller, credentials)
        if statement_type(job) != "SELECT":
            raise ToolError("The data must be the id of a table or a SELECT statement")

    async def _with_model(
        self,
        project_id: str,
        create: str,
        query: str,
        caller: str,
        credentials: Credentials | None,
        tool_context: ToolContext,
    ) -> JsonObject:
        """Creates a temporary model in the conversation's BigQuery session, and queries it."""
        if self._settings.write_mode is WriteMode.BLOCKED:
            raise ToolError(f"{caller} creates a temporary model, which write_mode does not allow (it is blocked)")
        result: JsonObject = {}
        for statement in (create, query):
            result = await self._jobs.execute(
                project_id,
                statement,
                caller=caller,
                credentials=credentials,
                tool_context=tool_context,
                write_mode=WriteMode.PROTECTED,
            )
        return result


def _summary(func: Callable[..., Any]) -> str:
    return (func.__doc__ or "").partition("\n")[0]


def _dataset(project_id: str, dataset_id: str) -> str:
    return path_of("projects", project_id, "datasets", dataset_id)


def _model_name(kind: str) -> str:
    return f"{kind}_model_{uuid.uuid4().hex}"


def _any_of(conditions: Any) -> str:
    return f"({' OR '.join(conditions)})"


def _entry(result: JsonObject) -> JsonObject:
    entry = object_in(result, "dataplexEntry")
    source = object_in(entry, "entrySource")
    return {
        "name": entry.get("name") or "",
        "display_name": source.get("displayName") or "",
        "entry_type": entry.get("entryType") or "",
        "update_time": entry.get("updateTime") or "",
        "linked_resource": source.get("resource") or "",
        "description": source.get("description") or "",
        "location": source.get("location") or "",
    }
