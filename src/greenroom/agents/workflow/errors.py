"""Errors of workflows. Names as in ADK, which raises them in the same cases."""

from __future__ import annotations

from greenroom.errors import AgentConfigError, RunFailed
from greenroom.records.event import Event


class WorkflowConfigurationError(AgentConfigError):
    """A node, an edge or an option is wrong."""


class GraphValidationError(WorkflowConfigurationError):
    """A workflow's graph can't be run.

    faults: all that is wrong with the graph, one sentence each.
    """

    def __init__(self, workflow: str, faults: list[str]) -> None:
        super().__init__(f"Workflow {workflow!r}: {'; '.join(faults)}")
        self.workflow = workflow
        self.faults = faults


class WorkflowDataError(RunFailed, ValueError):
    """A node's value is missing or has the wrong type."""


class StateSchemaError(WorkflowDataError):
    """A node wrote a key, or a value, that its state schema doesn't have."""


class NodeTimeoutError(RunFailed):
    def __init__(self, node_name: str, timeout: float) -> None:
        super().__init__(f"Node {node_name!r} timed out after {timeout:g} seconds.")
        self.node_name = node_name
        self.timeout = timeout


class NodeInterrupted(RunFailed):
    def __init__(self, path: str) -> None:
        super().__init__(
            f"Node {path} was interrupted; whether it had any effect is not known. "
            "A node with on_interrupt='retry' runs again instead."
        )
        self.path = path


class DynamicNodeFailError(RunFailed):
    """A node that `ctx.run_node` ran has failed.

    error: the exception of the node that `ctx.run_node` ran.
    """

    def __init__(self, node_name: str, error: Exception, error_node_path: str) -> None:
        super().__init__(f"Dynamic node {node_name} failed")
        self.error = error
        self.error_node_path = error_node_path
        self.status_code = getattr(error, "status_code", None)
        self.details = getattr(error, "details", None)


class NodeFailure(Exception):
    """A node has failed for good.

    events: events of the failure that are not stored yet; the last has the error.
    """

    def __init__(self, error: Exception, events: list[Event]) -> None:
        super().__init__(error)
        self.error = error
        self.events = events


class NodeWaiting(BaseException):
    """Unwinds a node whose child waits for a person. Not an Exception, so that the node's code lets
    it pass.
    """
