"""Approvals and credentials that a person gives: requests, answers, and the exchange of credentials."""
