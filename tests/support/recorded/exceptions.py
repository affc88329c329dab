"""Lists where a recorded pod may differ on our agent: JSON pointers with reasons, refused once no recording needs
them."""

from dataclasses import dataclass
from typing import Any

from tests.support.installed.chosen_programs import runs_in_docker
from tests.support.recorded.differences import Difference, differences

STATIC = (
    "image-volume",
    "pod-level-resources",
    "proc-unmasked",
    "user-namespace",
)  # API server 1.20 drops their fields; the last two have no sandbox, the first no volume in its status


@dataclass(frozen=True)
class Differs:
    """`part`: status, api (what the API server shows of it), events or calls. `path`: a pattern of JSON pointers below
    which the two sides may differ (`differences`). `only`: the recordings it is about, none = all. `chance`: on
    some machines, or at some times, the sides are equal. `docker`: it holds where the pods run in Docker, and only
    there. Any other row that is not needed is refused."""

    part: str
    path: str
    why: str
    only: tuple[str, ...] = ()
    chance: bool = False
    docker: bool = False

    def is_about(self, part: str, name: str) -> bool:
        """Return whether it holds for this part of this recording in this run."""
        return self.part in part and (not self.only or name in self.only) and (not self.docker or runs_in_docker())


V1_20 = "API server 1.20 has no such field"
DOCKERS = "Docker's own text, code and reason for a program that it cannot run"
TOKEN = "no token is projected into a static pod"
SERVICE_ACCOUNT = "~1var~1run~1secrets~1kubernetes.io~1serviceaccount"
EXCEPTIONS = (
    Differs("status", "/conditions/*/observedGeneration", "API server 1.20 counts no generations of pods"),
    Differs("status", "/observedGeneration", "API server 1.20 counts no generations of pods"),
    Differs("status", "/*ontainerStatuses/*/user", "containerd 1.6 does not return it"),
    Differs("status", f"/*ontainerStatuses/*/volumeMounts/{SERVICE_ACCOUNT}", TOKEN, STATIC[1:]),
    Differs("status", "/*ontainerStatuses/*/image", "two names of one image: containerd returns either", chance=True),
    Differs(
        "status",
        "/resources/limits",
        "the Go kubelet shows the limit of a cgroup that has none as 9007199254740988Ki; we show the pod's own values",
        ("bad-command", "crashloop", "deadline", "fails-never", "poststart-fails", "probes", "run-to-completion"),
    ),
    Differs(
        "status",
        "/containerStatuses/*/state",
        "recorded at the moment between an end and the back-off after it, which we show at once",
        ("crashloop",),
    ),
    Differs(
        "status",
        "/phase",
        "the phase before the end stays until the pod is over: Pending where StartContainer returns after the end",
        ("fails-never",),
        chance=True,
    ),
    Differs("status", "/containerStatuses/*/state/waiting/message", "the runtime's own text", ("image-absent",)),
    Differs("api", "/hostIPs", V1_20),
    Differs("api", "/resources", V1_20),
    Differs("api", "/allocatedResources", V1_20),
    Differs("api", "/*ontainerStatuses/*/resources", V1_20),
    Differs("api", "/*ontainerStatuses/*/allocatedResources", V1_20),
    Differs("api", "/*ontainerStatuses/*/volumeMounts", V1_20),
    Differs("calls", "/*/config/annotations", "a static pod has those of its source", STATIC[:2]),
    Differs("calls", "/*/sandbox_config/annotations", "a static pod has those of its source", STATIC[:2]),
    Differs(
        "calls", "/*/config/mounts/~1img/image/annotations", "a static pod has those of its source", ("image-volume",)
    ),
    Differs("calls", f"/*/config/mounts/{SERVICE_ACCOUNT}", TOKEN, STATIC[:2]),
    Differs(
        "calls",
        "/*/config/linux/resources/oom_score_adj",
        "by the machine's memory",
        ("env-sources", "pod-level-resources", "qos-burstable"),
        chance=True,
    ),
    Differs("calls", "/*/config/dns_config", "the machine's resolv.conf", ("dns-default",), chance=True),
    Differs("calls", "/*/sandbox_config/dns_config", "the machine's resolv.conf", ("dns-default",), chance=True),
    Differs(
        "calls",
        "/*/annotations/container.seccomp.security.alpha.kubernetes.io~1c",
        "API server 1.20 has the field's value in an annotation too",
        ("security-context",),
    ),
    Differs("events", "/*/message", "the runtime's own text for a registry it cannot reach", ("image-absent",)),
    Differs("status", "/containerStatuses/*/lastState/terminated", DOCKERS, ("bad-command",), docker=True),
    Differs("status", "/containerStatuses/*/state/waiting/message", DOCKERS, ("bad-command",), docker=True),
    Differs("events", "/*/message", DOCKERS, ("bad-command",), docker=True),
)
NOT_COMPARED = {
    "image-volume": "containerd 1.6 has no image volumes: only the calls until CreateContainer are compared"
}

needed: set[tuple[Differs, str]] = set()  # and by which recording


def unexplained(part: str, name: str, ours: Any, theirs: Any) -> list[Difference]:
    """Return the differences that no exception of this part of this recording explains."""
    rows = [row for row in EXCEPTIONS if row.is_about(part, name)]
    found = differences(ours, theirs)
    return [one for one in found if not any(one.matches(row.path) for row in rows)]


def equal(part: str, name: str, ours: Any, theirs: Any) -> bool:
    """Return whether the exceptions explain every difference; note which of them that needs."""
    if unexplained(part, name, ours, theirs):
        return False
    for row in EXCEPTIONS:
        if row.part in part and any(one.matches(row.path) for one in differences(ours, theirs)):
            needed.add((row, name))
    return True


def unneeded() -> list[str]:
    """Return what the recordings compared so far did not need; of a row for some recordings, by recording."""
    users: dict[Differs, set[str]] = {}
    for row, name in needed:
        users.setdefault(row, set()).add(name)
    rows = [row for row in EXCEPTIONS if not row.chance and not row.docker]
    found = [f"{row.part} {row.path}" for row in rows if row not in users]
    return found + [f"{row.part} {row.path} in {n}" for row in rows for n in set(row.only) - users.get(row, set())]
