"""The audit of a node: who changed what, who was denied what, who got in and who did not.

    audit.changed(request, text, error)
    audit.denied(check)
    audit.authenticated(peer, mechanism)

All of it runs on the loop and waits for nothing: lines go to `audit_files`. A node without
`headrace.audit.log` has no audit, and what would call it is not loaded or sees None.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from headrace.config.pages import PAGES
from headrace.errors import ErrorCode, KafkaError
from headrace.security import audit
from headrace.security.audit import AuditEvent, Folding, clip
from headrace.security.principals import NODE
from headrace.server.change_texts import ChangeText
from headrace.server.request import Peer, Request
from headrace.wire import APIS, ApiKey

OPERATOR: Final = "(operator)"
"""Who uses commands with --node: they prove the cluster's secret, and have no name."""


class Lines(Protocol):
    """Where lines go (`audit_files.AuditFiles`)."""

    written: int
    dropped: int
    lost: int

    def put(self, time_ms: int, event: AuditEvent) -> None: ...


class Audit:
    """What a node's parts tell of who did what."""

    def __init__(self, lines: Lines, now_ms: Callable[[], int]) -> None:
        self.lines = lines
        self._now_ms = now_ms
        self._folding = Folding()
        self._timer: asyncio.TimerHandle | None = None

    def changed(self, by: Request | None, text: ChangeText, error: KafkaError | None) -> None:
        """Record a metadata change, made or refused; without a request it is this node's."""
        peer = None if by is None else by.peer
        self._put(
            AuditEvent(
                kind=audit.CHANGE,
                outcome=audit.DONE if error is None else audit.REFUSED,
                principal=NODE if peer is None else peer.principal,
                address="" if peer is None else peer.address,
                listener="" if peer is None else peer.listener,
                client_id="" if by is None else clip(by.client_id or ""),
                api="" if by is None else APIS[by.api_key].name,
                resource=text.resource,
                names=(clip(text.name),) if text.name else (),
                change=text.change,
                details=clip(text.details),
                error="" if error is None else error.code.name,
            )
        )

    def commanded(self, what: str, names: Iterable[str], error: KafkaError | None) -> None:
        """Record what an operator did at the node port."""
        self._put(
            AuditEvent(
                kind=audit.CHANGE,
                outcome=audit.DONE if error is None else audit.REFUSED,
                principal=OPERATOR,
                resource="cluster",
                names=tuple(map(clip, names)),
                change=what,
                error="" if error is None else error.code.name,
            )
        )

    def denied(
        self,
        request: Request,
        operation: str,
        resource: str,
        names: Iterable[str],
        error: ErrorCode,
    ) -> None:
        """Record that a client lacked rights for a request or for parts of it."""
        peer = request.peer
        self._put(
            AuditEvent(
                kind=audit.DENIED,
                outcome=audit.DENIED,
                principal=peer.principal,
                address=peer.address,
                listener=peer.listener,
                client_id=clip(request.client_id or ""),
                api=APIS[request.api_key].name,
                operation=operation,
                resource=resource,
                names=tuple(map(clip, names)),
                error=error.name,
            )
        )

    def unknown(self, peer: Peer, api_key: int, reason: str) -> None:
        """Record that a request was not served because its client has not authenticated."""
        known = api_key in APIS
        self._put(
            AuditEvent(
                kind=audit.DENIED,
                outcome=audit.DENIED,
                principal=peer.principal,
                address=peer.address,
                listener=peer.listener,
                api=APIS[ApiKey(api_key)].name if known else "",
                reason=reason,
            )
        )

    def authenticated(self, peer: Peer, mechanism: str) -> None:
        """Record that a client has authenticated."""
        self._put(
            AuditEvent(
                kind=audit.AUTHENTICATION,
                outcome=audit.SUCCEEDED,
                principal=peer.principal,
                address=peer.address,
                listener=peer.listener,
                api=mechanism,
            )
        )

    def not_authenticated(self, peer: Peer, mechanism: str, claimed: str, reason: str) -> None:
        """Record that a client failed to authenticate; `claimed` is the name it gave, if any."""
        self._put(
            AuditEvent(
                kind=audit.AUTHENTICATION,
                outcome=audit.FAILED,
                principal=f"User:{clip(claimed)}" if claimed else "",
                address=peer.address,
                listener=peer.listener,
                api=mechanism,
                reason=clip(reason),
            )
        )

    def visited(self, kind: str, outcome: str, principal: str, *, address: str, page: str) -> None:
        """Record a login to the HTTP pages, a failed login, or a page that was refused."""
        self._put(
            AuditEvent(
                kind=kind,
                outcome=outcome,
                principal=clip(principal),
                address=address,
                listener=PAGES,
                api="GET",
                resource="page",
                names=(clip(page),),
            )
        )

    def close(self) -> None:
        """Hand over what was counted; lines that come later are lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._now_ms()
        for event in self._folding.finish():
            self.lines.put(now_ms, event)

    def _put(self, event: AuditEvent) -> None:
        now_ms = self._now_ms()
        line = self._folding.take(event, now_ms)
        if line is not None:
            self.lines.put(now_ms, line)
        if self._timer is None and self._folding.is_counting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(audit.WINDOW_MS / 1000, self._on_window)

    def _on_window(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        for event in self._folding.due(now_ms):
            self.lines.put(now_ms, event)
        if self._folding.is_counting:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(audit.WINDOW_MS / 1000, self._on_window)
