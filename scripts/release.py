"""Builds, checks and tags a release. `make release VERSION=x.y.z` runs it; nothing is published.

The packages are built twice, each time from a new clone of the commit, so that no file that git ignores gets into them,
and compared. `dist/` has them afterwards, with the bill of materials and SHA256SUMS.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"

_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")


def main(version: str) -> None:
    notes = check(version)
    os.environ.pop("SOURCE_DATE_EPOCH", None)  # the commit's time counts

    with tempfile.TemporaryDirectory(prefix="greenroom-release-") as folder:
        first = build(Path(folder) / "first")
        second = build(Path(folder) / "another-folder" / "second")
        compare(first, second)
        run("make", "test-packages", GREENROOM_DIST=str(first))
        replace_dist(first)

    run("git", "tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--message", f"greenroom {version}\n\n{notes}")
    show_next_steps(version)


def check(version: str) -> str:
    """Exits with the reason if the commit can't be released as this version; returns its section of the changelog."""
    if not _VERSION.fullmatch(version):
        sys.exit(f"VERSION={version!r} is not a version: write make release VERSION=x.y.z")

    branch = read("git", "branch", "--show-current")
    if branch != "main":
        sys.exit(f"Releases are made from main; this is {branch or 'no branch'}")
    changed = read("git", "status", "--porcelain")
    if changed:
        sys.exit(f"These files are not committed:\n{changed}")
    if read("git", "tag", "--list", f"v{version}"):
        sys.exit(f"The tag v{version} exists already")

    text = (ROOT / "src" / "greenroom" / "version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None or found[1] != version:
        sys.exit(f"src/greenroom/version.py says {found[1] if found else 'nothing'}, not {version}")
    return release_notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def release_notes(changelog: str, version: str) -> str:
    """Returns the version's section of the changelog. Exits if it isn't the first one below an empty `Unreleased`."""
    _, *sections = re.split(r"^## ", changelog, flags=re.MULTILINE)
    headings = [section.partition("\n")[0].strip() for section in sections]
    texts = [section.partition("\n")[2].strip() for section in sections]
    if headings[:1] != ["Unreleased"] or texts[0]:
        sys.exit(
            "CHANGELOG.md must begin with an empty section `## Unreleased`: move its entries below a heading "
            f"`## {version} - YYYY-MM-DD`"
        )
    if len(headings) < 2 or not re.fullmatch(rf"{re.escape(version)} - \d{{4}}-\d\d-\d\d", headings[1]):
        sys.exit(f"The section after `## Unreleased` in CHANGELOG.md must have the heading `## {version} - YYYY-MM-DD`")
    if not texts[1]:
        sys.exit(f"The section of {version} in CHANGELOG.md is empty")
    return texts[1]


def build(folder: Path) -> Path:
    """Clones the commit and builds it there; returns the folder of the packages."""
    run("git", "clone", "--quiet", "--no-local", "--depth", "1", "--branch", "main", ROOT.as_uri(), str(folder))
    run("make", "--directory", str(folder), "build")
    return folder / "dist"


def compare(first: Path, second: Path) -> None:
    """Exits if two builds differ."""
    names = {path.name for folder in (first, second) for path in folder.glob("greenroom-*")}
    different = [name for name in sorted(names) if digest(first / name) != digest(second / name)]
    if different:
        shutil.rmtree(DIST, ignore_errors=True)
        shutil.copytree(first, DIST / "first")
        shutil.copytree(second, DIST / "second")
        sys.exit(f"Two builds of the same commit differ in {', '.join(different)}; dist/ has both")


def replace_dist(built: Path) -> None:
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    packages = sorted(built.glob("greenroom-*"))
    for path in packages:
        shutil.copyfile(path, DIST / path.name)
    sums = [f"{digest(path)}  {path.name}\n" for path in packages]
    (DIST / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")


def digest(path: Path) -> str | None:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def show_next_steps(version: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    print(f"\nReleased as the tag v{version}, in this clone only. dist/ has:")
    print((DIST / "SHA256SUMS").read_text(encoding="utf-8"))
    if "urls" not in project:
        print("pyproject.toml has no [project.urls]: before the first publication, add where the source is.\n")
    print("To publish it:")
    print(f"  git push origin main v{version}")
    print("  uv publish dist/*.whl dist/*.tar.gz")
    print("Attach the files of dist/ to the release of the tag. To take it back before that:")
    print(f"  git tag --delete v{version}")


def run(*command: str, **environment: str) -> None:
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        sys.exit(f"Nothing was released: `{' '.join(command)}` failed")


def read(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    main(*sys.argv[1:] or [""])
