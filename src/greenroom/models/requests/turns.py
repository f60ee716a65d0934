"""Texts of the user's turns that a vendor needs at the ends of a conversation which has none there."""

CONTINUE = "Continue with what the system instruction and the conversation ask for."
NO_CONTENTS = "Do what the system instruction says."
BEGINNING = "This is what was said so far:"
"""Before a history that begins with the model, as one does whose beginning was replaced by a summary."""
