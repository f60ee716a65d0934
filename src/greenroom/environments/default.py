"""The sandbox of this machine, for those who name none."""

from __future__ import annotations

from greenroom.environments.bubblewrap import BubblewrapSandbox
from greenroom.environments.container import ContainerSandbox
from greenroom.environments.sandbox import Sandbox, SandboxLimits
from greenroom.environments.webassembly import WebAssemblySandbox
from greenroom.errors import MissingExtra, ToolError


async def default_sandbox(*, limits: SandboxLimits | None = None) -> Sandbox:
    """Returns a sandbox, not started, of the first kind that can be started here: bubblewrap, else a
    container, else WebAssembly.

    Raises ToolError, with the reason of each kind.
    """
    reasons: list[str] = []
    for kind in (BubblewrapSandbox, ContainerSandbox, WebAssemblySandbox):
        sandbox = kind(limits=limits)
        try:
            await sandbox.initialize()
        except (ToolError, MissingExtra) as error:
            reasons.append(str(error))
        else:
            await sandbox.close()
            return sandbox

    raise ToolError("No sandbox can be started on this machine. " + ". ".join(reasons))
