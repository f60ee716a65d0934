"""Asking the user for what calls need, approvals and credentials, and taking the answers."""
