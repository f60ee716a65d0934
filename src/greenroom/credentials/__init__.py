"""Credentials that agents use on behalf of users, and pending credential requests."""
