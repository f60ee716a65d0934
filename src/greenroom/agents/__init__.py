"""Agents, and how one of them takes its turn."""
