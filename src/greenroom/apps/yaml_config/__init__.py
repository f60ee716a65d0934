"""Agents written in YAML: the files' text, their keys, and what the names in them stand for."""
