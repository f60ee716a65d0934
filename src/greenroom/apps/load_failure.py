"""An app's failure in one sentence, with the place in the apps' own code where it happened."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from greenroom.errors import AgentConfigError, AppLoadError, GreenroomError


def described(
    app_name: str, error: BaseException, *, agents_dir: Path, package: str
) -> tuple[AppLoadError, Path | None]:
    """The error in one sentence, with the last place of it in the apps' own code, and the file of that place."""
    place = _place_in(agents_dir, error)
    if isinstance(error, SyntaxError):
        text = error.msg
        if error.filename is not None:
            place = Path(error.filename), error.lineno or 0
    elif isinstance(error, GreenroomError):
        text = error.detail
    else:
        text = str(error)
    reason = type(error).__name__ + (f": {text}" if text else "").replace(package + ".", "")
    if place is None:
        return AppLoadError(app_name, reason), None
    path, line = place
    shown = path.relative_to(agents_dir) if path.is_relative_to(agents_dir) else path
    return AppLoadError(app_name, f"{reason} ({shown}:{line})"), path


def own_frames(folder: Path, error: BaseException) -> TracebackType | None:
    """The traceback from the first frame in the apps' code on, without the import machinery above it."""
    traceback = error.__traceback__
    while traceback is not None and not Path(traceback.tb_frame.f_code.co_filename).is_relative_to(folder):
        traceback = traceback.tb_next
    return traceback


def _place_in(folder: Path, error: BaseException) -> tuple[Path, int] | None:
    traceback: TracebackType | None = error.__traceback__
    place: tuple[Path, int] | None = None
    while traceback is not None:
        path = Path(traceback.tb_frame.f_code.co_filename)
        if path.is_relative_to(folder) and "site-packages" not in path.parts:
            place = path, traceback.tb_lineno
        traceback = traceback.tb_next
    return place


def says_it_all(error: BaseException) -> bool:
    """Errors in a configuration file tell their place themselves, unless they come from code that it names."""
    return isinstance(error, AgentConfigError) and hasattr(error, "line") and error.__cause__ is None
