"""The Kubernetes releases whose behaviour this agent can keep: `emulatedVersion` of BulkheadConfiguration chooses."""

RELEASES = ("1.35", "1.36", "1.37")  # major.minor, oldest first
KUBERNETES_VERSION = "1.37"  # where emulatedVersion is not set


def release_tag(version: str) -> str:
    """Return the release of a major.minor version where a patch release has to be named too, such as v1.37.0."""
    return f"v{version}.0"


def is_since(version: str, release: str) -> bool:
    """Return whether the version is `release` or later; both are of RELEASES."""
    return RELEASES.index(version) >= RELEASES.index(release)
