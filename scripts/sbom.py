# pyright: basic, reportMissingImports=false
"""Writes the bill of materials of a wheel: CycloneDX, in JSON.

`make sbom` runs it in an environment with cyclonedx-python-lib: `python scripts/sbom.py WHEEL FILE`, with uv on PATH
and the time of the commit in SOURCE_DATE_EPOCH. uv lists the locked dependencies with their hashes; packages that only
extras need have the scope `optional`. The same wheel and lock give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tomllib
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).parents[1]


def main(wheel: Path, file: Path) -> None:
    bom = _locked_packages("--all-extras")
    required = {component.name for component in _locked_packages().components}
    for component in bom.components:
        component.scope = ComponentScope.REQUIRED if component.name in required else ComponentScope.OPTIONAL

    assert bom.metadata.component is not None
    _describe(bom.metadata.component, wheel)
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, hashlib.sha256(wheel.read_bytes()).hexdigest())

    text = JsonV1Dot6(bom).output_as_string(indent=2) + "\n"
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        sys.exit(f"The bill of materials doesn't fit the schema of CycloneDX 1.6: {error}")
    file.write_text(text, encoding="utf-8")


def _locked_packages(*options: str) -> Bom:
    """Returns uv's bill of materials of the base dependencies; options add extras."""
    command = ["uv", "export", "--quiet", "--frozen", "--no-default-groups", *options]
    command += ["--format", "cyclonedx1.5", "--preview-features", "sbom-export"]
    text = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    document = json.loads(text)
    document["metadata"]["tools"] = {"components": [{"type": "application", **_tool(document)}]}
    return Bom.from_json(document)


def _tool(document: dict[str, Any]) -> dict[str, str]:
    """Returns uv in the form of CycloneDX 1.6."""
    [tool] = document["metadata"]["tools"]
    return {"group": tool["vendor"], "name": tool["name"], "version": tool["version"]}


def _describe(component: Component, wheel: Path) -> None:
    """Adds what uv doesn't know of the package that is built."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version, *_ = wheel.name.split("-")
    component.type = ComponentType.APPLICATION
    component.version = version
    component.description = project["description"]
    component.licenses = [LicenseExpression(project["license"])]
    component.purl = PackageURL("pypi", None, name, version)
    component.hashes = [HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel.read_bytes()).hexdigest())]


main(Path(sys.argv[1]), Path(sys.argv[2]))
