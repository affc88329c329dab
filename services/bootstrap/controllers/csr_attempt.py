"""Runs one CertificateSigningRequest from its creation to the certificate, and reports attempts that fail.

It depends on no store and no schedule of rotation; these are in `certificate_rotation` and `tls_bootstrap`.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.bootstrap.adapters import signing_api
from services.bootstrap.adapters.pending_request import PendingRequest
from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.core.rotation import REFUSED_PAUSE_SECONDS, attempt_delay
from services.bootstrap.core.signing_request import CsrOutcome
from services.frame.launch import Context
from shared.errors import OperatorError
from shared.kube.interface import ApiClient, ApiError, ApiStatusError, ApiUnreachableError
from shared.model.objects import Object
from shared.process.crash import crash_point

log = logging.getLogger(__name__)

FAILURES = (ApiError, OperatorError, ProblemError, OSError)  # that an attempt may raise; the text of each is one line


class RefusedError(Exception):
    """A signer or an approver refused, or the answer cannot be used, so that repeating it at once does not help."""

    def __init__(self, line: str, request: signing_api.SubmittedRequest | None = None) -> None:
        super().__init__(line)
        self.request = request  # when it is deleted, another request may be sent


@dataclass
class CsrAttempt:
    """One attempt. `accepted` saves that the API server has the request; `stranger` returns the problem of an object
    that had the name before, "" = it is ours; `waits` receives what the attempt waits for."""

    wall: Callable[[], float]
    accepted: Callable[[PendingRequest], Awaitable[None]]
    stranger: Callable[[Object], Awaitable[str]]
    waits: Callable[[str], None]

    async def certificate(self, api: ApiClient, pending: PendingRequest) -> str:
        """Send the request, wait, and return the issued certificates, PEM. Raises ApiError, OSError, RefusedError, and
        ProblemError for a request that may be repeated at once."""
        if not pending.uid:
            made = await signing_api.send(
                api, pending.name, pending.request, pending.template, encipherment=pending.encipherment
            )
            crash_point("bootstrap.request.sent")
            has_it = signing_api.sent(made)
            if problem := await self.stranger(made):
                raise RefusedError(problem, has_it)
            pending = pending.accepted(has_it.uid, has_it.version)
            await self.accepted(pending)
            log.info("asked %s for a certificate: %s", pending.template.signer, pending.name)
            crash_point("bootstrap.request.accepted")
        request = signing_api.SubmittedRequest(name=pending.name, uid=pending.uid, version=pending.version)
        seconds = max(pending.until - self.wall(), 0.0)
        found = await signing_api.answered(api, request, seconds, self.waits)
        match found.outcome:
            case CsrOutcome.ISSUED:
                return found.certificate
            case CsrOutcome.DENIED | CsrOutcome.FAILED:
                raise RefusedError(found.line, request)
            case CsrOutcome.GONE:
                raise ProblemError(f"{pending.name} {found.line}; another one will be made")
            case _:
                raise ProblemError(f"{found.line}; that did not happen in time, another one will be made")


class CsrFailures:
    """Reports the failed attempts of one certificate in the log and in the beat, and decides the pauses between them.
    `name` begins its lines."""

    def __init__(self, context: Context, name: str, chance: Callable[[], float]) -> None:
        self._context, self._name, self._chance = context, name, chance
        self._failures = 0
        self._last = ""

    def failed(self, error: Exception) -> float:
        """Report the failure once; return the seconds to wait before the next attempt."""
        self._failures += 1
        self._report(_line_of(error), logging.ERROR)
        if isinstance(error, RefusedError):
            return REFUSED_PAUSE_SECONDS
        unreachable = isinstance(error, ApiUnreachableError)
        return attempt_delay(self._failures, self._chance(), unreachable=unreachable)

    def waits(self, line: str) -> None:
        """Report what the attempt waits for."""
        self._report(line, logging.INFO)

    def good(self) -> None:
        """Clear the trouble, because an attempt succeeded."""
        self._failures, self._last = 0, ""
        self._context.bus.trouble(self._name, None)

    def _report(self, line: str, level: int) -> None:
        text = f"{self._name}: {line}"
        if text != self._last:
            log.log(level, "%s", text)
        self._last = text
        self._context.bus.trouble(self._name, text)


def _line_of(error: Exception) -> str:
    if isinstance(error, ApiStatusError) and error.code == 401:
        return f"{error} (the credentials that ask are not known to the API server: renew them)"
    if isinstance(error, ApiStatusError) and error.forbidden:
        return f"{error} (allow it: the ClusterRole system:node-bootstrapper)"
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or type(error).__name__} (free disk space or repair it)"
    return str(error)
