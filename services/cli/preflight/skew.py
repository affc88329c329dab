"""Decides whether this agent's release may be used with an API server of another release (the skew policy of
Kubernetes). Pure."""

import re

from services.cli.preflight.findings import Finding, Section, Severity

MAX_OLDER_MINORS = 3  # by which a kubelet may be older than the API server; it may never be newer
TESTED = "1.20"  # the version of the API server that the tests use


def skew_finding(git_version: str, emulated: str) -> Finding:
    """Return the finding for an API server of this `gitVersion`, such as v1.36.2. `emulated`: the major.minor version
    of Kubernetes whose kubelet this agent behaves as."""
    release = re.match(r"v?(\d{1,4})\.(\d{1,4})", git_version)
    shown = git_version[:40]
    if release is None:
        what = f"reports the version {shown!r}, which is no release of Kubernetes"
        return Finding(section=Section.CLUSTER, severity=Severity.WARNING, what=what)
    ours = tuple(int(part) for part in emulated.split("."))
    theirs = (int(release[1]), int(release[2]))
    what = f"is {shown}; this agent behaves as a kubelet {emulated}"
    if theirs[0] != ours[0] or theirs[1] > ours[1] + MAX_OLDER_MINORS:
        remedy = f"a kubelet may be at most {MAX_OLDER_MINORS} minor releases older than the API server"
        return Finding(section=Section.CLUSTER, severity=Severity.WARNING, what=what, remedy=remedy)
    if theirs < ours:
        remedy = f"Kubernetes supports no kubelet that is newer; this agent is tested with {TESTED}"
        return Finding(section=Section.CLUSTER, severity=Severity.WARNING, what=what, remedy=remedy)
    return Finding(section=Section.CLUSTER, severity=Severity.OK, what=what)
