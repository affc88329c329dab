"""The feature gates of volumes that are off by default; pure."""

from collections.abc import Mapping

EMPTY_DIR_MODE = "EmptyDirVolumeMode"
GIT_REPO = "GitRepoVolumeDriver"
_GATES = (
    EMPTY_DIR_MODE,
    GIT_REPO,
    "AtomicWriteVolumeUserFields",
    "CSIVolumeHealth",
    "ClusterTrustBundleProjection",
    "PodCertificateRequest",
    "SELinuxMount",
)


def enabled(feature_gates: Mapping[str, bool]) -> frozenset[str]:
    """Return the names of the volume gates that are on. `feature_gates`: as configured."""
    return frozenset(gate for gate in _GATES if feature_gates.get(gate, False))
