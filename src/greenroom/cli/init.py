"""`greenroom init`: the folder of a new app."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from greenroom.cli.terminal import note, print_line
from greenroom.errors import InvalidRequest

TEMPLATES = Path(__file__).parent / "templates"

_NAME = "my_agent"
_MODEL = "local/smollm2-135m"

Template = Literal["chat", "tools", "team", "workflow", "yaml", "evaluation"]


@dataclass(frozen=True)
class _Example:
    """message: to try the app with. has_model: whether its agents use a model. extra: another one that it needs."""

    message: str
    has_model: bool = True
    extra: str | None = None


_EXAMPLES: dict[str, _Example] = {
    "chat": _Example("Why is the sky blue?"),
    "tools": _Example("What time is it in Europe/Oslo?"),
    "team": _Example("Where is my order A-1?"),
    "workflow": _Example("20 lamps", has_model=False),
    "yaml": _Example("Why is the sky blue?"),
    "evaluation": _Example("What do 2 chairs cost?", has_model=False, extra="eval"),
}


def init(
    directory: Annotated[Path, Parameter(name="DIR")],
    /,
    *,
    template: Template = "chat",
    model: str = _MODEL,
) -> None:
    """Write the folder of a new app, which runs at once.

        greenroom init agents/helper

        greenroom init agents/desk --template tools --model openai/gpt-5-mini

    Parameters
    ----------
    directory
        The new folder. Its name is the app's. Files that are already there are not replaced.
    template
        `chat`: an agent to talk to. `tools`: functions, one of which a person must approve. `team`: agents that hand
        over to each other. `workflow`: a graph of functions, without a model. `yaml`: an agent in YAML. `evaluation`:
        an agent with test cases, without a model.
    model
        The model of the agents. The default runs on this machine, without a key.
    """
    from greenroom.apps.find_apps import is_name

    name = directory.resolve().name
    if not is_name(name) or not name.isidentifier():
        raise InvalidRequest(f"{name!r} can't be the name of an app: use letters, digits and _, and no digit first")

    files = [file for file in sorted((TEMPLATES / template).iterdir()) if file.is_file()]
    existing = next((directory / file.name for file in files if (directory / file.name).exists()), None)
    if existing is not None:
        raise InvalidRequest(f"{existing} exists already")

    directory.mkdir(parents=True, exist_ok=True)
    for file in files:
        text = file.read_text(encoding="utf-8").replace(_MODEL, model).replace(_NAME, name)
        (directory / file.name).write_text(text, encoding="utf-8")
        print_line(str(directory / file.name))

    _show_next_steps(directory, template, model)


def _show_next_steps(directory: Path, template: Template, model: str) -> None:
    example = _EXAMPLES[template]
    folder = shlex.quote(str(directory))
    lines = ["\nTry it:"]
    extras = _missing_extras(example, model)
    if extras:
        lines.append(f"  pip install 'greenroom[{','.join(extras)}]'")
    if example.has_model and model == _MODEL:
        lines.append(f"  greenroom models pull {model.removeprefix('local/')}")
    lines.append(f"  greenroom run {folder} {shlex.quote(example.message)}")
    if template == "evaluation":
        lines.append(f"  greenroom eval {folder} prices")
    lines.append(f"  greenroom serve {shlex.quote(str(directory.parent))}")
    note("\n".join(lines))


def _missing_extras(example: _Example, model: str) -> list[str]:
    from greenroom.cli.extras import installed_extras
    from greenroom.models.by_name import LLMRegistry

    installed = installed_extras()
    needed = (LLMRegistry.extra_of(model) if example.has_model else None, example.extra)
    return [extra for extra in needed if extra is not None and not installed.get(extra, True)]
