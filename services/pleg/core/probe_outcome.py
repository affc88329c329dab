"""Has the outcome of one try of a probe, and the texts about it that API clients see (pods.md 10.2, 10.3)."""

from msgspec import Struct

from services.pleg.core.probe_spec import ProbeKind
from services.pleg.core.probe_worker import Verdict

MAX_OUTPUT_BYTES = 10 * 1024  # of a command's output and of a body; the rest is not read
UNHEALTHY, WARNING = "Unhealthy", "ProbeWarning"


class Outcome(Struct, frozen=True):
    """Has the verdict, and the output or error. `state`: the name of an ERROR's result in its event."""

    verdict: Verdict
    output: str = ""
    state: str = "unknown"


def event_of(kind: ProbeKind, outcome: Outcome) -> tuple[str, str] | None:
    """Return (reason, message) of the Warning event; None for a success, which has none."""
    match outcome.verdict:
        case Verdict.FAILURE:
            return UNHEALTHY, f"{kind.label} probe failed: {outcome.output}"
        case Verdict.WARNING:
            return WARNING, f"{kind.label} probe warning: {outcome.output}"
        case Verdict.ERROR:
            return UNHEALTHY, f"{kind.label} probe errored and resulted in {outcome.state} state: {outcome.output}"
    return None


def text_of(output: bytes) -> str:
    """Return output as text, which may be binary, up to MAX_OUTPUT_BYTES of it."""
    return output[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")
