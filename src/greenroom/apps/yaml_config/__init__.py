"""Agents written in YAML.

`document` reads a file into nodes with their lines, and `reader` reads a node as a value of a type,
with `keys` and `fields`. `records` are the keys of the files, from which `schema` makes a JSON
Schema. `agents`, `tools` and `workflows` build what a file describes; `references` finds code by
name, and `construct` calls it.
"""
