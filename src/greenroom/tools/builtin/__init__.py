"""The tools that greenroom ships, one module each.

`model_side` has those that the model's service executes; `artifact_contents` shows files in a form
that models read.
"""
