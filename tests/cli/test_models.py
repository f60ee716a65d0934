from __future__ import annotations

from tests.cli.conftest import Cli


def test_models_are_listed_with_whether_they_are_downloaded(cli: Cli) -> None:
    cli.environment["GREENROOM_CACHE_DIR"] = str(cli.folder / "cache")
    cli.write("cache/models/mine.gguf", "GGUF")
    done = cli("models", "list")
    assert done.returncode == 0
    rows = {line.split()[0]: line.split()[1:4] for line in done.stdout.splitlines() if line.startswith("local/")}
    assert rows["local/smollm2-135m"] == ["98", "MB", "no"]
    assert rows["local/mine"] == ["0", "MB", "yes"]
    assert "greenroom models pull NAME" in done.stderr


def test_an_unknown_model_is_refused_with_the_known_ones(cli: Cli) -> None:
    done = cli.run_process("models", "pull", "nonsense")
    assert done.returncode == 1
    assert "smollm2-135m" in done.stderr
    assert "Traceback" not in done.stderr
