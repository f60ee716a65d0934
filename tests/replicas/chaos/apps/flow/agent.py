from tests.replicas.chaos.agents import flow as root_agent

__all__ = ["root_agent"]
