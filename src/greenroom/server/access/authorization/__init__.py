"""Authorization: the services that a handler can reach, limited to the caller's permissions.

Handlers reach services only through these wrappers, so no handler can skip a check. Checks use only the caller's
identity and the names in the request, so a refusal does not reveal which resources exist. Runs are addressed by id
alone, so another user's run is reported as not found.

permissions: an identity, limited by the endpoint's access. authorized: the wrapper of a service, whose methods are
checked. The other modules have the wrapper of one resource each, and are named after it.
"""
