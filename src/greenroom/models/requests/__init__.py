"""Mechanics of all vendors' requests, so that any history and any set of tools makes a valid one.

rules.py: what a vendor takes, as a record, and a request prepared for it. calls.py: calls beside
their responses, with ids that the vendor takes. tool_names.py: names of tools, there and back.
schemas.py: schemas of parameters. Each vendor has its own rules in a module beside its conversion.
"""
