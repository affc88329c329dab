"""When a failed operation on a volume may run again."""

import pytest

from services.volume.core.operations.operation_backoff import OperationBackoff
from services.volume.core.operations.operations import MountVolume
from services.volume.core.specs.volume_spec import VolumeSpec

MOUNT = MountVolume("u", "kubernetes.io/csi/v", VolumeSpec(plugin="kubernetes.io/csi", source=None))


@pytest.mark.parametrize("prefix", [False, True], ids=["its object", "its driver"])
def test_a_change_while_the_operation_runs_ends_the_wait_of_its_failure(prefix: bool) -> None:
    """It may have read what was there before the change."""
    backoff = OperationBackoff()
    backoff.start(MOUNT)
    if prefix:
        backoff.retry_all_now("kubernetes.io/csi/")
    else:
        backoff.retry_now("u", MOUNT.volume)
    assert backoff.failed(MOUNT, 10.0) == 0.0
    assert backoff.may_start(MOUNT, 10.0)
    backoff.start(MOUNT)
    assert backoff.failed(MOUNT, 11.0) > 0.5, "nothing changed since: the wait grows"
    assert not backoff.may_start(MOUNT, 11.0)


def test_a_change_of_another_volume_leaves_the_wait() -> None:
    backoff = OperationBackoff()
    backoff.start(MOUNT)
    backoff.retry_now("u", "other")
    backoff.retry_all_now("kubernetes.io/nfs/")
    assert backoff.failed(MOUNT, 10.0) == 0.5
