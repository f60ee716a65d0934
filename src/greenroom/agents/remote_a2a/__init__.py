"""Agents on other servers, over the A2A protocol."""
