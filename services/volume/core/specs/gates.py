"""The feature gates of volumes that are off by default; pure."""

from collections.abc import Mapping

from shared.version import is_since

EMPTY_DIR_MODE = "EmptyDirVolumeMode"
HEALTH = "CSIVolumeHealth"
VOLUME_CONDITION, GET_VOLUME_HEALTH = "VOLUME_CONDITION", "GET_VOLUME_HEALTH"  # capabilities of CSI drivers
GIT_REPO = "GitRepoVolumeDriver"
_GATES = (
    EMPTY_DIR_MODE,
    GIT_REPO,
    "AtomicWriteVolumeUserFields",
    HEALTH,
    "ClusterTrustBundleProjection",
    "PodCertificateRequest",
    "SELinuxMount",
)


def enabled(feature_gates: Mapping[str, bool]) -> frozenset[str]:
    """Return the names of the volume gates that are on. `feature_gates`: as configured."""
    return frozenset(gate for gate in _GATES if feature_gates.get(gate, False))


def health_capability(feature_gates: Mapping[str, bool], release: str) -> str:
    """Return the capability of CSI drivers by which they report the health of volumes, "" = they are not asked.
    `release`: one of RELEASES; 1.37 knows only that of CSI 1.13."""
    if not feature_gates.get(HEALTH, False):
        return ""
    return GET_VOLUME_HEALTH if is_since(release, "1.37") else VOLUME_CONDITION
