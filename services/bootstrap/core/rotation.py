"""Decides when a certificate is to be replaced, and when a failed request is repeated (config.md 5.4). Pure.

Randomness is an argument in [0, 1); times are wall seconds, delays seconds.
"""

from services.bootstrap.core.certificate_template import CertificateFacts, Template, covers
from shared.time.backoff import Backoff

REFUSED_PAUSE_SECONDS = 300.0  # before a refused request is repeated, unless its object is deleted before
_EARLIEST, _SPREAD = 0.7, 0.2  # of the lifetime
_ATTEMPTS, _JITTER = Backoff(initial=2.0, cap=32.0), 0.1  # the jitter never exceeds the cap
_MIN_VALIDITY_SECONDS = 40.0  # for less, a certificate is not replaced early
_MAX_UNREACHABLE_SECONDS = 8.0  # the longest delay, so that a node joins within ten seconds of its network


def rotation_deadline(facts: CertificateFacts, chance: float) -> float:
    """Return the moment at which this certificate is to be replaced, at 70 to 90 % of its lifetime."""
    return facts.not_before + (facts.not_after - facts.not_before) * (_EARLIEST + _SPREAD * chance)


def deadline_of_new(facts: CertificateFacts, deadline: float, wall: float) -> float:
    """Return the deadline of a certificate that was just issued. Signers backdate short validities, so that it may be
    due already: then it is used for half of the time that is left, where that is long enough."""
    left = facts.not_after - wall
    return max(deadline, wall + left / 2) if left >= _MIN_VALIDITY_SECONDS else deadline


def is_due(facts: CertificateFacts | None, template: Template, deadline: float, wall: float) -> bool:
    """Return whether a certificate is to be requested now. `deadline`: that of the present one."""
    return facts is None or wall >= min(deadline, facts.not_after) or not covers(facts, template)


def attempt_delay(failures: int, chance: float, *, unreachable: bool = False) -> float:
    """Return the seconds to wait after so many failures in a row (at least one)."""
    delay = _ATTEMPTS.delay(failures, _JITTER * chance)
    return min(delay, _MAX_UNREACHABLE_SECONDS if unreachable else _ATTEMPTS.cap)
