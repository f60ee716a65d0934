"""The path of agent cards on an A2A server."""

from __future__ import annotations

AGENT_CARD_WELL_KNOWN_PATH = "/.well-known/agent-card.json"
"""Of A2A 0.3 and 1.0; on the server's address."""
