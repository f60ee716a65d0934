"""Code in the code interpreter extension of Vertex AI.

Source: `extensions.import` and `extensions.execute` of the Vertex AI API, v1beta1,
https://docs.cloud.google.com/vertex-ai/generative-ai/docs/model-reference/extension; the manifest, and the parameters
and the output of the operation `execute`: `Extension.from_hub` of google-cloud-aiplatform, and ADK.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from greenroom.code_executors.executor import (
    CODE_BLOCKS,
    RESULT_BLOCK,
    TIMED_OUT,
    BaseCodeExecutor,
    CodeExecutionInput,
    CodeExecutionResult,
    Delimiters,
    result_of,
)
from greenroom.code_executors.remote import OutputFiles, check_input_names, session_digest
from greenroom.environments.process import ExecutionResult, cut
from greenroom.errors import AgentConfigError, StorageError
from greenroom.google_cloud.vertex import VertexClient, tool_errors
from greenroom.invocation.context import InvocationContext
from greenroom.records.base import JsonObject

_NAME = re.compile(r"projects/[\w.:-]+/locations/[a-z0-9-]+/extensions/[0-9]+", re.ASCII)
_NAME_VARIABLE = "CODE_INTERPRETER_EXTENSION_NAME"

_DISPLAY_NAME = "greenroom-code-interpreter"
_EXTENSION: JsonObject = {
    "displayName": _DISPLAY_NAME,
    "description": "Runs the code of agents",
    "manifest": {
        "name": "code_interpreter_tool",
        "description": "Google Code Interpreter Extension",
        "apiSpec": {"openApiGcsUri": "gs://vertex-extension-public/code_interpreter.yaml"},
        "authConfig": {"authType": "GOOGLE_SERVICE_ACCOUNT_AUTH", "googleServiceAccountConfig": {}},
    },
}
_OPERATION = "Running code in Vertex AI's code interpreter"
_CREATION_SECONDS = 300.0


class VertexAiCodeExecutor(BaseCodeExecutor):
    """Runs Python in Vertex AI's code interpreter. Google advises to use Agent Engine instead.

    The code finds `io`, `math`, `re`, `np`, `pd`, `plt` and `scipy` imported, and the functions `crop(s, max_chars=64)`
    and `explore_df(df)`.

    resource_name: of the extension: `projects/…/locations/…/extensions/…`. Default: the variable
        CODE_INTERPRETER_EXTENSION_NAME, else the project's extension called greenroom-code-interpreter, which is
        created if it is missing.
    stateful: code of one session shares variables and files.
    timeout_seconds: for a response. Google offers no way to stop code that takes longer.
    project, location, credentials, base_url: see `VertexClient`.
    """

    def __init__(
        self,
        resource_name: str | None = None,
        *,
        stateful: bool = False,
        timeout_seconds: float | None = 300.0,
        error_retry_attempts: int = 2,
        optimize_data_file: bool = False,
        code_block_delimiters: Sequence[Delimiters] = CODE_BLOCKS,
        execution_result_delimiters: Delimiters = RESULT_BLOCK,
        project: str | None = None,
        location: str | None = None,
        credentials: Any = None,
        base_url: str | None = None,
    ) -> None:
        super().__init__(
            code_block_delimiters=code_block_delimiters,
            execution_result_delimiters=execution_result_delimiters,
            error_retry_attempts=error_retry_attempts,
            stateful=stateful,
            optimize_data_file=optimize_data_file,
            timeout_seconds=timeout_seconds,
        )
        name = resource_name or os.environ.get(_NAME_VARIABLE) or None
        if name is not None and _NAME.fullmatch(name) is None:
            raise AgentConfigError(f"{name!r} is not the resource name of an extension")

        self._extension = name
        self._finding_extension = asyncio.Lock()
        self._client = VertexClient(project, location, credentials=credentials, base_url=base_url)

    async def execute_code(
        self, invocation_context: InvocationContext, code_execution_input: CodeExecutionInput
    ) -> CodeExecutionResult:
        check_input_names(code_execution_input)

        params: JsonObject = {"code": f"{_PRELUDE}\n{code_execution_input.code}"}
        if code_execution_input.input_files:
            params["files"] = [
                {"name": file.name, "contents": base64.b64encode(file.content).decode()}
                for file in code_execution_input.input_files
            ]
        if code_execution_input.execution_id is not None:
            params["session_id"] = session_digest(invocation_context, code_execution_input.execution_id)

        with tool_errors(_OPERATION):
            extension = await self._found_or_created_extension()
            body = {"operationId": "execute", "operationParams": params}
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    reply = await self._client.call("POST", f"{extension}:execute", body, timeout_seconds=None)
            except TimeoutError:
                complaint = f"The code did not end within {self.timeout_seconds:g} s; it may still be running."
                return CodeExecutionResult(stderr=complaint, exit_code=TIMED_OUT)
            return _result(reply, code_execution_input)

    async def close(self) -> None:
        await self._client.close()

    async def _found_or_created_extension(self) -> str:
        async with self._finding_extension:
            if self._extension is None:
                self._extension = await self._find_extension() or await self._create_extension()
            return self._extension

    async def _find_extension(self) -> str | None:
        path = f"{self._client.parent()}/extensions"
        async for extension in self._client.pages(path, "extensions", filter=f'display_name="{_DISPLAY_NAME}"'):
            return extension["name"]
        return None

    async def _create_extension(self) -> str:
        operation = await self._client.call("POST", f"{self._client.parent()}/extensions:import", _EXTENSION)
        return (await self._client.finish(operation, timeout_seconds=_CREATION_SECONDS))["name"]


class _OutputFile(msgspec.Struct):
    name: str
    contents: str = ""


class _Output(msgspec.Struct):
    """The content of a response, which is JSON in a text."""

    execution_result: str | None = None
    execution_error: str | None = None
    output_files: list[_OutputFile] | None = None


def _result(reply: JsonObject, code_input: CodeExecutionInput) -> CodeExecutionResult:
    files = OutputFiles(code_input.input_files)
    try:
        output = msgspec.json.decode(reply.get("content") or "{}", type=_Output)
        for file in output.output_files or ():
            files.add(file.name, base64.b64decode(file.contents))
    except (msgspec.MsgspecError, binascii.Error) as error:
        raise StorageError("A request to Vertex AI", f"the output of the code can't be read: {error}") from error

    complaint = cut(output.execution_error or "")
    ran = ExecutionResult(
        exit_code=int(bool(complaint)),
        stdout=cut(output.execution_result or ""),
        stderr=complaint,
    )
    return result_of(ran, timeout_seconds=None, output_files=files.kept, left_out=files.left_out)


_PRELUDE = '''\
import io
import math
import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import scipy


def crop(s, max_chars=64):
    """Shortens a text."""
    return s if len(s) <= max_chars else s[: max_chars - 3] + "..."


def explore_df(df):
    """Prints the size of a table, and of each column the type, the number of values and the values."""
    columns = pd.DataFrame(
        {
            "Dtype": df.dtypes.astype(str),
            "Non-Null Count": [f"{count} / {len(df)} non-null" for count in df.notna().sum()],
            "Unique Values Count": [len(column.unique()) for _, column in df.items()],
            "Unique Values": [crop(str(list(column.unique()))) for _, column in df.items()],
        },
        index=df.columns,
    )
    print("Total rows:", len(df))
    print("Total columns:", len(df.columns))
    with pd.option_context("display.max_columns", None, "display.expand_frame_repr", False):
        print(columns)
'''
