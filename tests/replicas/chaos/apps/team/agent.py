from tests.replicas.chaos.agents import team as root_agent

__all__ = ["root_agent"]
