"""The built-in tools, one module each.

`model_side` has the tools that the model's service runs; `artifact_contents` converts files to a form that models read.
"""
