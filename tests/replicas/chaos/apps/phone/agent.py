from tests.replicas.chaos.agents import phone as root_agent

__all__ = ["root_agent"]
