"""The documentation as a site: `hooks.py` chooses the files, `reference.py` writes the pages made from the code."""
