"""Static checks of apps that were written for ADK: reports features that are missing here, without running the apps'
code.

`app_files`: the files of an app. `source`: a Python file, its imports and its uses of them. `names`, `calls`,
`packages`, `models`, `config_files`: a check each.
"""
