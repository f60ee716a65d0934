"""Calling a greenroom server from Python: typed, with streams that resume by themselves."""
