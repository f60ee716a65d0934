"""Static checks of apps that were written for ADK: finds what they lack here, and runs no code of theirs.

`app_files`: which files an app consists of. `source`: a Python file, its imports and its uses of them.
`names`, `calls`, `packages`, `models`, `config_files`: each finds one kind of what is missing.
"""
