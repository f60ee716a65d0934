from tests.replicas.chaos.agents import desk as root_agent

__all__ = ["root_agent"]
