"""Runs SQL in BigQuery within a write mode.

Every statement is dry run first, unless all writes are allowed, and BigQuery itself says what kind of statement it is:
`DELETE FROM d.t WHERE true` in the mode `blocked` is refused because the dry run's `statementType` is DELETE. In the
mode `protected` a statement that writes is executed only if its dry run's destination is the anonymous dataset of the
conversation's BigQuery session, where temporary tables are.

Source: `jobs.insert` and `jobs.getQueryResults` of the BigQuery API's reference, v2.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, field

from greenroom.errors import ToolError
from greenroom.invocation.user_context import ToolContext
from greenroom.records.base import JsonObject, JsonValue
from greenroom.tools.google_cloud.bigquery.config import RESERVED_LABELS, BigQueryToolConfig, WriteMode
from greenroom.tools.google_cloud.bigquery.rows import read_rows
from greenroom.tools.google_cloud.credentials_config import Credentials
from greenroom.tools.google_cloud.rest_api import GoogleRestApi, object_in, objects_in, path_of

MAX_REMEMBERED_SESSIONS = 1024
_WAIT_MILLISECONDS = 10_000


@dataclass(frozen=True)
class BigQuerySession:
    """A session of BigQuery, and the dataset of its temporary tables."""

    id: str
    destination: tuple[str, str]
    """Project and dataset."""


@dataclass
class BigQueryJobs:
    api: GoogleRestApi
    settings: BigQueryToolConfig
    query_timeout_seconds: float = 600.0
    """The longest time that a query may take."""
    # Not in the conversation's state, which clients can write: it decides what may be written to.
    _sessions: OrderedDict[tuple[str, ...], BigQuerySession] = field(
        default_factory=OrderedDict[tuple[str, ...], BigQuerySession]
    )

    async def execute(
        self,
        project: str,
        query: str,
        *,
        caller: str,
        credentials: Credentials | None,
        tool_context: ToolContext,
        write_mode: WriteMode | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """The rows; with dry_run the job that BigQuery would run. Raises ToolError for what is not allowed.

        caller: the tool's name, for a label. write_mode: in place of the settings'.
        """
        self.check_project(project)
        mode = write_mode or self.settings.write_mode
        properties: list[JsonObject] = []
        job: JsonObject | None = None

        if mode is WriteMode.BLOCKED:
            job = await self.dry_run(project, query, caller, credentials)
            if statement_type(job) != "SELECT":
                raise ToolError("Only SELECT statements are allowed (write_mode is blocked)")
        elif mode is WriteMode.PROTECTED:
            session = await self._session(project, caller, credentials, tool_context)
            properties = [{"key": "session_id", "value": session.id}]
            job = await self.dry_run(project, query, caller, credentials, properties)
            if statement_type(job) != "SELECT" and _destination(job) != session.destination:
                raise ToolError(
                    "Only SELECT statements, and writes to temporary tables and models, are allowed "
                    "(write_mode is protected)"
                )

        if dry_run:
            job = job or await self.dry_run(project, query, caller, credentials, properties)
            return {"status": "SUCCESS", "dry_run_info": job}

        configuration: JsonObject = {}
        if self.settings.maximum_bytes_billed:
            configuration["maximumBytesBilled"] = str(self.settings.maximum_bytes_billed)
        if self.settings.kms_key_name:
            job = job or await self.dry_run(project, query, caller, credentials, properties)
            if statement_type(job) == "SELECT":  # BigQuery refuses a key for other statements
                configuration["destinationEncryptionConfiguration"] = {"kmsKeyName": self.settings.kms_key_name}
        started = await self._insert(project, query, caller, credentials, properties, **configuration)
        return await self._results(project, object_in(started, "jobReference"), caller, credentials)

    async def dry_run(
        self,
        project: str,
        query: str,
        caller: str,
        credentials: Credentials | None,
        properties: list[JsonObject] | None = None,
        *,
        create_session: bool = False,
    ) -> JsonObject:
        """The job that BigQuery would run."""
        extra: JsonObject = {"createSession": True} if create_session else {}
        return await self._insert(project, query, caller, credentials, properties or [], is_dry_run=True, **extra)

    async def _insert(
        self,
        project: str,
        query: str,
        caller: str,
        credentials: Credentials | None,
        properties: list[JsonObject],
        *,
        is_dry_run: bool = False,
        **configuration: JsonValue,
    ) -> JsonObject:
        """Starts a job; returns it as BigQuery describes it."""
        configuration |= {"query": query, "useLegacySql": False}
        if properties:
            configuration["connectionProperties"] = properties
        job: JsonObject = {"configuration": {"query": configuration, "labels": self._labels(caller)}}
        if is_dry_run:
            job["configuration"]["dryRun"] = True
        if self.settings.location:
            job["jobReference"] = {"projectId": project, "location": self.settings.location}
        path = f"projects/{path_of(project)}/jobs"
        return await self.api.call("POST", credentials, path, body=job, user_agent=self.user_agent(caller))

    def check_project(self, project: str) -> None:
        """Raises ToolError when queries may not be executed in the project."""
        only = self.settings.compute_project_id
        if only and project != only:
            raise ToolError(f"Queries can't be executed in project {project!r}, only in {only!r}")

    def user_agent(self, caller: str) -> str:
        return f"(tool: {caller}) {self.settings.application_name or ''}".strip()

    async def _session(
        self, project: str, caller: str, credentials: Credentials | None, tool_context: ToolContext
    ) -> BigQuerySession:
        """The BigQuery session of the conversation, which is created on first use."""
        conversation = tool_context.session
        key = (project, conversation.app_name, conversation.user_id, conversation.id)
        known = self._sessions.get(key)
        if known is not None:
            self._sessions.move_to_end(key)
            return known

        job = await self.dry_run(project, "SELECT 1", caller, credentials, create_session=True)
        session_id = object_in(job, "statistics", "sessionInfo").get("sessionId")
        destination = _destination(job)
        if not session_id or destination is None:
            raise ToolError("BigQuery created no session")
        self._sessions[key] = BigQuerySession(session_id, destination)
        while len(self._sessions) > MAX_REMEMBERED_SESSIONS:
            self._sessions.popitem(last=False)
        return self._sessions[key]

    async def _results(
        self, project: str, reference: JsonObject, caller: str, credentials: Credentials | None
    ) -> JsonObject:
        """Waits for the job, and returns its rows."""
        limit = self.settings.max_query_result_rows
        deadline = time.monotonic() + self.query_timeout_seconds
        path = f"projects/{path_of(project)}/queries/{path_of(str(reference.get('jobId') or ''))}"

        rows: list[JsonObject] = []
        page_token: str | None = None
        while True:
            query: dict[str, str | int | bool | None] = {
                "location": reference.get("location"),
                "maxResults": limit - len(rows),
                "pageToken": page_token,
                "timeoutMs": _WAIT_MILLISECONDS,
                "formatOptions.useInt64Timestamp": True,
            }
            page = await self.api.call("GET", credentials, path, query, user_agent=self.user_agent(caller))
            if page.get("jobComplete"):
                rows += read_rows(object_in(page, "schema"), objects_in(page, "rows"))
                page_token = page.get("pageToken")
                if len(rows) >= limit or not page_token:
                    break
            elif time.monotonic() > deadline:
                raise ToolError(f"The query took longer than {self.query_timeout_seconds:g} seconds")

        result: JsonObject = {"status": "SUCCESS", "rows": rows[:limit]}
        if len(rows) >= limit:
            result["result_is_likely_truncated"] = True
        return result

    def _labels(self, caller: str) -> JsonObject:
        labels: JsonObject = {**(self.settings.job_labels or {}), f"{RESERVED_LABELS}tool": caller}
        if self.settings.application_name:
            labels[f"{RESERVED_LABELS}application-name"] = self.settings.application_name
        return labels


def statement_type(job: JsonObject) -> str | None:
    return object_in(job, "statistics", "query").get("statementType")


def _destination(job: JsonObject) -> tuple[str, str] | None:
    """Project and dataset of the table that the job writes to."""
    table = object_in(job, "configuration", "query", "destinationTable")
    if not table.get("datasetId"):
        return None
    return str(table.get("projectId") or ""), str(table["datasetId"])
