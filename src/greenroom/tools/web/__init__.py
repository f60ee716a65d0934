"""Requests over the network, and what keeps them out of private ones."""
