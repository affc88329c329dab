"""Defines what preflight reports: findings by section, one verdict for each pod, and the exit code. Pure."""

from enum import StrEnum

from msgspec import Struct

from shared.podspec.support import Unsupported


class Severity(StrEnum):
    """How grave a finding is; only a problem keeps the agent from taking over."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


class Section(StrEnum):
    """What a finding is about, in the order of the output."""

    CONFIGURATION = "configuration"
    CLUSTER = "API server"
    RUNTIME = "runtime"
    MACHINE = "machine"
    PORTS = "ports"
    DISK = "disk"
    PODS = "pods"


class Finding(Struct, frozen=True, kw_only=True):
    """A finding in one line: what, where, remedy. The texts may quote a file or a pod, with control characters."""

    section: Section
    severity: Severity
    what: str
    where: str = ""
    remedy: str = ""


class Verdict(StrEnum):
    """What becomes of a pod under this agent."""

    RUNS = "runs"  # it runs now and keeps running
    RESTARTS = "restarts"  # a static pod: this agent gives it another UID
    CANNOT = "cannot run yet"
    ENDED = "has ended"


class PodVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on one pod. `reasons`: the fields that are not supported; `running`: the pod runs now."""

    namespace: str
    name: str
    uid: str
    verdict: Verdict
    running: bool = False
    reasons: tuple[Unsupported, ...] = ()


class Report(Struct, frozen=True, kw_only=True):
    """Everything that was found. `node`: its name, "" = not known."""

    node: str
    findings: tuple[Finding, ...]
    pods: tuple[PodVerdict, ...]

    @property
    def problems(self) -> int:
        """The number of findings and pods that keep the agent from taking over."""
        return self._count(Severity.PROBLEM) + sum(pod.verdict is Verdict.CANNOT for pod in self.pods)

    @property
    def warnings(self) -> int:
        """The number of findings that an operator should look at."""
        return self._count(Severity.WARNING)

    @property
    def can_take_over(self) -> bool:
        """Whether there is no problem."""
        return not self.problems

    def _count(self, severity: Severity) -> int:
        return sum(finding.severity is severity for finding in self.findings)
