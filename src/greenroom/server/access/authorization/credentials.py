"""Credentials of users, limited to the caller's permissions."""

from __future__ import annotations

from greenroom.credentials.service import BaseCredentialService
from greenroom.server.access.authorization.authorized import Authorized, reading, writing


class AuthorizedCredentials(Authorized[BaseCredentialService]):
    __slots__ = ()

    list_credentials = reading(BaseCredentialService.list_credentials)
    delete_credential = writing(BaseCredentialService.delete_credential, "credential.revoked")
