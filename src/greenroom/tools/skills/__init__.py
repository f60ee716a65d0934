"""Skills: instructions, files and scripts that a model reads when it needs them.

`skill` loads them, `toolset` has the functions by which a model uses them, and `scripts` runs their
scripts.
"""
