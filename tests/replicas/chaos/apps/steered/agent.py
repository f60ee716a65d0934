from tests.replicas.chaos.agents import steered as root_agent

__all__ = ["root_agent"]
