"""When a certificate is due to be replaced, and when to ask again after a failure (config.md 5.4). Pure.

Randomness is an argument in [0, 1); times are wall seconds, delays seconds.
"""

from services.bootstrap.core.certificate_template import CertificateFacts, Template, covers
from shared.time.backoff import Backoff

REFUSED_PAUSE = 300.0  # seconds before a signer that refused is asked again, unless its answer is removed before
_EARLIEST, _SPREAD = 0.7, 0.2  # of the lifetime
_ATTEMPTS, _JITTER = Backoff(initial=2.0, cap=32.0), 0.1  # the jitter never exceeds the cap
_SHORTEST = 40.0  # seconds of validity that are worth another request
_UNREACHABLE = 8.0  # seconds at most: a node joins within ten of its network


def rotation_deadline(facts: CertificateFacts, chance: float) -> float:
    """The moment at which this certificate is to be replaced: 70 to 90 % of its lifetime."""
    return facts.not_before + (facts.not_after - facts.not_before) * (_EARLIEST + _SPREAD * chance)


def deadline_of_new(facts: CertificateFacts, deadline: float, wall: float) -> float:
    """The deadline of one that has just come. Signers date short validities back, so that one may be due already: it
    serves for half of what is left, where that is worth it."""
    left = facts.not_after - wall
    return max(deadline, wall + left / 2) if left >= _SHORTEST else deadline


def is_due(facts: CertificateFacts | None, template: Template, deadline: float, wall: float) -> bool:
    """Whether to ask for a certificate now. `deadline` is the present one's."""
    return facts is None or wall >= min(deadline, facts.not_after) or not covers(facts, template)


def attempt_delay(failures: int, chance: float, *, unreachable: bool = False) -> float:
    """How long to wait after so many failures in a row (at least one)."""
    delay = _ATTEMPTS.delay(failures, _JITTER * chance)
    return min(delay, _UNREACHABLE if unreachable else _ATTEMPTS.cap)
