"""The data of a user in an app, from all stores.

`inventory` lists it by kind, `export` writes it into a zip file, and `erasure` deletes it and looks for what is left.
"""
