"""Evaluation: agents are run on sets of cases, and their replies scored by metrics."""
