"""Requests to people, limited to the caller's permissions."""

from __future__ import annotations

import msgspec

from greenroom.errors import Forbidden, RequestNotFound
from greenroom.records.inbox import (
    Answerer,
    DelegateRequest,
    HumanRequest,
    ListRequestsResponse,
    Reader,
    RequestAnswer,
    RequestFilter,
    may_answer,
)
from greenroom.records.run import Run, RunFilter
from greenroom.records.session import SessionKey
from greenroom.runs.engine import RunEngine
from greenroom.runs.watch import RunWatch
from greenroom.server.access.authorization.authorized import Authorized


class AuthorizedRequests(Authorized[RunEngine]):
    """Requests to people for one caller: those that it may not see are reported as not found."""

    __slots__ = ()

    async def list_requests(
        self,
        where: RequestFilter,
        *,
        approver: str | None,
        limit: int,
        page_token: str | None = None,
        run_ids: list[str] | None = None,
    ) -> ListRequestsResponse:
        """Open requests to people that the caller may see; with `approver` only those that this user may answer now.

        run_ids: only of these runs. Raises Forbidden.
        """
        reader = self._reader(approver)
        where = msgspec.structs.replace(where, run_ids=run_ids)
        if approver is not None:
            where.answered_by = reader
        listed = await self._service.list_requests(self._seen(where), limit=limit, page_token=page_token)
        for request in listed.requests:
            request.may_answer = may_answer(reader, request)
        return listed

    async def watch_requests(self, where: RequestFilter) -> RunWatch:
        """Changes of runs whose requests the filter may select. Their requests are read with `list_requests`."""
        apps = self._seen(msgspec.structs.replace(where)).app_names
        return await self._service.watch_runs(RunFilter(app_names=apps, user_id=where.user_id))

    async def get_request(self, request_id: str) -> HumanRequest:
        """Raises RequestNotFound, also for a request that the caller may not see."""
        request = await self._watched_result(self._service.get_request(request_id))
        if not self._may_see(request):
            raise RequestNotFound(request_id)
        request.may_answer = may_answer(self._reader(), request)
        return request

    async def answer_request(self, request_id: str, answer: RequestAnswer) -> tuple[HumanRequest, Run | None]:
        """The run is None for callers who may not see it. Raises as `RunEngine.answer_request` and `get_request`."""
        request = await self.get_request(request_id)
        answerer = self._answerer(request, answer.user_id, answer.comment)
        answered, run = await self._watched_result(self._service.answer_request(request_id, answer, answerer=answerer))
        answered.may_answer = may_answer(self._reader(), answered)
        return answered, run if self._identity.acts_for(run.app_name, run.user_id) else None

    async def delegate_request(self, request_id: str, delegation: DelegateRequest) -> HumanRequest:
        """Raises as `RunEngine.delegate_request` and `get_request`."""
        request = await self.get_request(request_id)
        answerer = self._answerer(request, delegation.from_user_id, delegation.comment)
        changed = await self._watched_result(
            self._service.delegate_request(request_id, delegation.user_id, answerer=answerer)
        )
        changed.may_answer = may_answer(self._reader(), changed)
        return changed

    async def get_session_of_request(self, request_id: str) -> SessionKey:
        """The session of a request, for those who may read it. Raises RequestNotFound, Forbidden."""
        request = await self.get_request(request_id)
        is_shown = request.policy is not None and request.policy.sees == "session"
        if not is_shown and not self._identity.acts_for(request.app_name, request.user_id):
            raise Forbidden("Those who answer this request don't see its session")
        if self._permissions.audit is not None:
            self._permissions.audit.note_access(self._identity, request.app_name, request.user_id)
        return request.session_key

    def _seen(self, where: RequestFilter) -> RequestFilter:
        """Limits the filter to requests that the caller may see. Raises Forbidden for an app beyond its reach."""
        identity = self._identity
        for app in where.app_names or ():
            identity.check_app(app)
        if where.app_names is None and identity.apps is not None:
            where.app_names = sorted(identity.apps)
        if not identity.is_unlimited:
            where.seen_by = self._reader()
        return where

    def _reader(self, user_id: str | None = None) -> Reader:
        """The caller, or the user for whom it reads. Raises Forbidden."""
        identity = self._identity
        if user_id is not None and user_id != identity.subject:
            apps = ["*"] if identity.apps is None else sorted(identity.apps)
            if not all(identity.acts_for(app, user_id) for app in apps):
                raise Forbidden(f"These credentials don't act for user {user_id!r}")
            return Reader(user_id=user_id)
        return Reader(
            user_id=identity.subject, scopes=sorted(identity.scopes), all_users_of=sorted(identity.apps_of_all_users)
        )

    def _may_see(self, request: HumanRequest) -> bool:
        identity = self._identity
        if identity.acts_for(request.app_name, request.user_id):
            return True
        return identity.reaches(request.app_name) and request.concerns(identity.subject, sorted(identity.scopes))

    def _answerer(self, request: HumanRequest, user_id: str | None, comment: str | None) -> Answerer:
        """The caller, or the user that it names. Raises Forbidden."""
        identity = self._identity
        if identity.caller is None:
            return Answerer(user_id=user_id or request.user_id, comment=comment)
        if user_id is None or user_id == identity.subject:
            return Answerer(user_id=identity.subject, scopes=sorted(identity.scopes), comment=comment)
        if not identity.acts_for(request.app_name, user_id):
            raise Forbidden(f"These credentials don't act for user {user_id!r} in app {request.app_name!r}")
        return Answerer(user_id=user_id, scopes=[], comment=comment)
