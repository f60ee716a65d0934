"""Mechanics of all vendors' requests, so that any history and any set of tools makes a valid one.

rules.py: a vendor's rules, as a record, and a request prepared for it. calls.py: calls with their responses, with ids
that the vendor accepts. tool_names.py: conversion of tool names. schemas.py: schemas of parameters. Each vendor has its
own rules in a module beside its conversion.
"""
