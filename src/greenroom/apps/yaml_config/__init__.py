"""Agents written in YAML: the files' text, their keys, and the resolution of their names."""
