"""Functions by which a model controls a computer: the contract of a computer, the toolset, and a
browser.
"""
