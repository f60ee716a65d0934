"""Requests over the network, what keeps them out of private ones, and the text of pages."""
