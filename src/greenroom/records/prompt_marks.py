"""How contents begin that stand in a user's turns of a prompt, and are not the user's words."""

from __future__ import annotations

FROM_OTHER_AGENTS = "For context:"
"""What other agents said and did. Source: ADK, whose recordings hold it, too."""

INSTRUCTIONS = "Your instructions at this moment, from those who made you and not from the user:"
"""An agent's instruction, before the newest messages, where a static one has the place in the system text."""
