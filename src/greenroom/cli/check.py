"""`greenroom check`: reports what apps written for ADK lack here."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from greenroom.cli.app_check.finding import Finding
from greenroom.cli.parameters import ApiKey, SessionStore, check_not_with_server
from greenroom.cli.terminal import note, print_line
from greenroom.errors import CallerError, InvalidRequest

if TYPE_CHECKING:
    from greenroom.cli.app_check.app_files import AppFiles


def check(
    directory: Annotated[Path | None, Parameter(name="PATH")] = None,
    /,
    *,
    waiting: Annotated[bool, Parameter(negative=())] = False,
    session_service: SessionStore = None,
    url: str | None = None,
    api_key: ApiKey = None,
    limit: int = 1000,
) -> None:
    """Check what apps written for ADK lack here, without running them; or whether waiting runs fit changed apps.

    Reads the Python files that the apps import, and their YAML files. Reports with file and line: names of ADK and of
    google.genai.types that greenroom lacks, arguments that it does not accept, abstract methods that a class does not
    implement, packages that are not installed, and models whose package, key or file is missing. Variables in `.env`
    files count as set. The last line is the command that installs the packages. Exits with 1 if anything is missing.

    Also reports names that behave differently, missing names in files that no app imports, and agents of other
    frameworks, with what of their framework's promises is kept.

        greenroom check path/to/agents

    With `--waiting`, loads the apps of the folder, or of the wheels and zip archives in it, and replays the waiting
    runs of the database that began with another version of their app. Shows for each run whether it would continue in
    the same way, or the first event that differs. Models and tools are not called, and the database is only read,
    beside a running server, too. Exits with 1 if a run differs.

        greenroom check path/to/new/agents --waiting --session-service postgresql://user:password@host/database

    With `--waiting` and `--url`, a running server compares its waiting runs with the code that it has loaded.

        greenroom check --waiting --url https://agents.example.com

    Parameters
    ----------
    directory
        A folder of apps, the folder of one app, or one file. Hidden folders and `node_modules` are skipped.
    waiting
        Compare waiting runs.
    url
        With `--waiting`, in place of PATH: the URL of a running server.
    limit
        With `--waiting`: the maximum number of runs. The newest are compared.
    """
    if not waiting and (session_service is not None or url is not None):
        raise CallerError("--session-service and --url belong to --waiting")
    if url is not None:
        check_not_with_server(PATH=directory is not None, session_service=session_service is not None)
        from greenroom.cli.waiting_runs import check_waiting_of_server

        check_waiting_of_server(url, api_key, limit)
        return
    if directory is None:
        raise CallerError("Give the PATH of the apps")
    if waiting:
        from greenroom.cli.waiting_runs import check_waiting

        check_waiting(directory, session_service, limit)
        return

    if show_findings(directory):
        sys.exit(1)


def show_findings(directory: Path, *, shown_as: Path | None = None) -> int:
    """Prints the findings about a folder or a file, and returns how many things are missing.

    shown_as: the path to print in place of that of the folder. Raises InvalidRequest if there is nothing to check.
    """
    from greenroom.cli.app_check.app_files import AppFiles

    files = AppFiles(directory)
    if files.file_count == 0:
        raise InvalidRequest(f"No Python files and no YAML agents found in {shown_as or directory}")

    findings, names = findings_of(files)
    shown = sorted(set(findings))
    for finding in shown:
        file = finding.file if shown_as is None else shown_as / finding.file.relative_to(directory)
        print_line(f"{file}:{finding.line}: {finding.text}")

    requirements = sorted({finding.requirement for finding in shown if finding.is_missing and finding.requirement})
    if requirements:
        print_line(f"pip install {shlex.join(requirements)}")
    missing = sum(finding.is_missing for finding in shown)
    note(f"missing: {missing}; names of ADK: {names}; files: {files.file_count}")
    return missing


def findings_of(files: AppFiles) -> tuple[list[Finding], int]:
    """Returns all findings, and how many names of ADK the files use."""
    from greenroom.apps.load_directory import load_env_file
    from greenroom.cli.app_check.calls import find_abstract_methods, find_private_members, find_unknown_arguments
    from greenroom.cli.app_check.config_files import find_in_config
    from greenroom.cli.app_check.frameworks import find_frameworks
    from greenroom.cli.app_check.models import find_models, registers_models
    from greenroom.cli.app_check.names import find_names
    from greenroom.cli.app_check.packages import find_missing_extras, find_missing_packages

    findings = list(files.findings)
    count = 0
    for source in files.sources.values():
        load_env_file(source.path.parent)
        found, names = find_names(source, files.names_imported_from(source.path))
        count += names
        findings += found
        findings += find_unknown_arguments(source)
        findings += find_abstract_methods(source)
        findings += find_private_members(source)
        findings += find_missing_packages(source, files)
        findings += find_missing_extras(source)
        findings += find_models(source, files)
        findings += find_frameworks(source)

    for file in files.configs:
        load_env_file(file.parent)
        found, names = find_in_config(file, registers=registers_models(files))
        count += names
        findings += found

    for source in files.read_others():
        found, _ = find_names(source)
        findings += (
            finding._replace(text=f"{finding.text} (no app imports this file)", is_missing=False) for finding in found
        )
    return findings, count
