"""BigQuery's REST API, v2, as far as jobs go: dry runs say what a statement is and where it writes to."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from starlette.responses import JSONResponse, Response

from tests.tools.google_api.server import GoogleServer, Json, Seen, refusal

JOBS = "POST /bigquery/v2/projects/p-1/jobs"
RESULTS = "GET /bigquery/v2/projects/p-1/queries/job-1"


@dataclass
class BigQuery:
    """executed: the statements that were run, dry runs left out. inserted: the body of each job."""

    google: GoogleServer
    executed: list[str] = field(default_factory=list[str])
    inserted: list[Json] = field(default_factory=list[Json])
    sessions: int = 0

    def __post_init__(self) -> None:
        self.google.answers[JOBS] = self.insert
        self.google.answers[RESULTS] = {"jobComplete": True, "totalRows": "0"}

    def insert(self, seen: Seen) -> Response:
        job: Json = seen.body
        self.inserted.append(job)
        configuration: Json = job["configuration"]
        query: Json = configuration["query"]
        sql: str = query["query"]
        if "nonsense" in sql:
            return refusal(400, "INVALID_ARGUMENT", "Syntax error: Unexpected identifier at [1:1]")

        statistics: Json = {"query": {"statementType": self.statement_type(sql)}, "totalBytesProcessed": "10"}
        if query.get("createSession"):
            self.sessions += 1
            statistics["sessionInfo"] = {"sessionId": f"bq-session-{self.sessions}"}
        if not configuration.get("dryRun"):
            self.executed.append(sql)
        described = {**configuration, "query": {**query, "destinationTable": self.destination(sql)}}
        reference = {"projectId": "p-1", "jobId": "job-1", "location": "EU"}
        return JSONResponse({"jobReference": reference, "configuration": described, "statistics": statistics})

    @staticmethod
    def statement_type(sql: str) -> str:
        if ";" in sql.rstrip(";"):
            return "SCRIPT"
        first = sql.split(maxsplit=1)[0].upper()
        if first == "CREATE":
            return "CREATE_MODEL" if " MODEL " in sql else "CREATE_TABLE"
        return "SELECT" if first in ("SELECT", "WITH") else first

    @staticmethod
    def destination(sql: str) -> Json | None:
        """A script has none. Temporary tables, and the results of SELECT, are in the anonymous dataset."""
        if ";" in sql.rstrip(";"):
            return None
        named = re.search(r"(?:INTO|TABLE|FROM|UPDATE)\s+(\w+)\.(\w+)", sql)
        is_temporary = sql.upper().startswith(("SELECT", "WITH", "CREATE TEMP"))
        dataset = "_anonymous" if named is None or is_temporary else named[1]
        return {"projectId": "p-1", "datasetId": dataset, "tableId": "t"}
