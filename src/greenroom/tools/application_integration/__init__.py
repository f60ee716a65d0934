"""Tools made of Google's Application Integration: an integration's triggers, or a connector's
entities and actions.
"""
