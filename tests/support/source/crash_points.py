"""Lists which test kills a process at which crash point, by exact names; `points_in_code` is what it is compared
with."""

import ast
from pathlib import Path

from services.podsync.core.pod import instructions
from services.volume.core.operations import operations
from tests.chaos.cells import POINTS

CHECKOUT = Path(__file__).resolve().parents[3]
CALLS = tuple(sorted(kind.__name__ for kind in instructions.Call.__subclasses__()))
OPERATIONS = tuple(sorted(kind.__name__ for kind in operations.Operation.__args__))

FLEX_COMMANDS = ("init", "waitforattach", "mountdevice", "mount", "expandfs", "unmount", "unmountdevice")
CSI_METHODS = (
    "NodeGetCapabilities",
    "NodeStageVolume",
    "NodePublishVolume",
    "NodeUnpublishVolume",
    "NodeUnstageVolume",
)
_STEPS = ("WRITE", "REMOVE", "RELOAD", "RESTART", "WAIT")  # of a takeover and a give-back

# What a placeholder in the name of a point stands for.
PLACEHOLDERS = {
    "{type(instruction).__name__}": CALLS,
    "{kind}": CALLS,
    "{call}": (*CALLS, "none"),
    "{type(operation).__name__}": OPERATIONS,
    "{point}": ("saved", "published"),
    "{method}": CSI_METHODS,
    "{command}": FLEX_COMMANDS,
    "{step.name}": _STEPS,
}

OF_THE_MATRIX = frozenset(point for point, _ in POINTS)

_OF_DEVICES = ("AllocatePodDevices", "AskPreferredDevices")
_SIMULATED_CALLS = tuple(
    call
    for call in CALLS
    if call not in ("EndTasks", "FetchNode", "PullImage", "ResizePod", "RunPostStartHook", "SetContainerCpus")
    and call not in _OF_DEVICES
)
_OF_DISKS = ("MountDevice", "UnmountDevice", "ExpandVolume")  # no simulated pod has such a volume
SIMULATED = (
    *(f"podsync.{step}.{call}" for step in ("saved", "published", "acted") for call in _SIMULATED_CALLS),
    *("podsync.saved.none", "podsync.published.none"),
    *(f"volume.{step}.{call}" for step in ("calling", "acted") for call in OPERATIONS if call not in _OF_DISKS),
    *("sources.saved", "sources.published"),
)

# Test file -> the points at which it kills. The file names each, or its last part behind the common prefix.
OF_OTHER_TESTS = {
    "tests/process/test_csr_kills.py": ("bootstrap.kubeconfig.written",),
    "tests/service/bootstrap/test_csr_kills.py": (
        *(f"bootstrap.request.{step}" for step in ("noted", "sent", "accepted")),
        *(f"bootstrap.certificate.{step}" for step in ("written", "linked", "stored")),
        *("bootstrap.key.removed", "bootstrap.kubeconfig.written"),
    ),
    "tests/process/test_credentials.py": ("bootstrap.credentials.piece", "bootstrap.credentials.written"),
    "tests/process/test_reload.py": ("bootstrap.reload.checked", "bootstrap.reload.written"),
    "tests/service/bootstrap/test_node_config_faults.py": tuple(
        f"bootstrap.node_config.{step}" for step in ("written", "downloaded", "assigned", "promoted", "rejected")
    ),
    "tests/process/test_embedded_containerd.py": ("containerd.started",),
    "tests/e2e/test_image_pulls.py": tuple(f"podsync.image.{step}" for step in ("intent", "pulled", "recorded")),
    "tests/e2e/test_subpaths_real.py": tuple(
        f"volume.subpath.{step}" for step in ("opened", "target", "bound", "unmounted")
    ),
    "tests/machine/test_kubeadm_takeover.py": tuple(
        f"takeover.{moment}.{step}" for moment in ("saved", "acted") for step in _STEPS
    ),
    "tests/service/sources/test_apply_endpoint.py": ("sources.applied",),
    "tests/service/sources/test_offline_record.py": ("sources.offline.saved", "sources.offline.published"),
    "tests/service/status/test_offline_tokens.py": ("status.offline.saved",),
    "tests/service/volume/test_devices.py": tuple(
        f"volume.{step}.{operation}" for step in ("calling", "acted") for operation in _OF_DISKS
    ),
    "tests/e2e/test_local_volumes.py": (
        *(f"volume.device.{step}" for step in ("probed", "formatted", "mounted")),
        *(f"volume.block.{step}" for step in ("linked", "bound", "locked", "unlocked", "unbound")),
    ),
    "tests/e2e/test_iscsi_volumes.py": (
        *(f"volume.disk.{step}" for step in ("recorded", "attached", "unmounted", "unmapped", "removed", "detached")),
        *(f"volume.iscsi.{step}" for step in ("interface", "discovery", "discovered", "login", "logged_in")),
        *(f"volume.iscsi.{step}" for step in ("logged_out", "forgotten")),
    ),
    "tests/e2e/test_docker_node.py": (
        *(f"dockershim.sandbox.{step}" for step in ("created", "started", "emptied", "stopped", "removed")),
        *(f"dockershim.network.{step}" for step in ("recorded", "added", "deleted")),
        *(f"dockershim.container.{step}" for step in ("created", "started", "stopped", "removed")),
    ),
    "tests/service/volume/test_csi_kills.py": tuple(
        f"volume.csi.{step}.{method}" for step in ("calling", "answered") for method in CSI_METHODS
    ),
    "tests/service/volume/test_flex_volumes.py": tuple(
        f"volume.flex.{step}.{command}"
        for step in ("calling", "answered")
        for command in FLEX_COMMANDS
        if command != "expandfs"
    ),
    "tests/service/volume/test_resource_claim_restarts.py": tuple(
        f"volume.claim.{step}" for step in ("saved", "answered", "prepared", "unprepared")
    ),
    "tests/service/volume/test_claim_checkpoint.py": ("volume.claim.recorded",),
    "tests/service/volume/test_device_plugin_restarts.py": ("volume.device_plugin.saved",),
    "tests/e2e/test_device_restarts.py": tuple(
        f"podsync.{step}.AllocatePodDevices" for step in ("saved", "published", "calling", "acted")
    ),
    "tests/simulation/test_device_kills.py": (
        *(
            f"podsync.{step}.{call}"
            for step in ("saved", "published", "calling", "acted")
            for call in (*_OF_DEVICES, "SetContainerCpus")
        ),
        "volume.device_plugin.saved",
    ),
    "tests/service/volume/test_plugin_registration.py": ("volume.plugin.answered", "volume.plugin.published"),
    "tests/service/podsync/test_memory_throttles.py": ("podsync.resize.unthrottled",),
    "tests/service/podsync/test_resize.py": (
        *(f"podsync.{step}.ResizePod" for step in ("saved", "published", "acted")),
        "podsync.resize.written",
    ),
    "tests/process/test_memory_volumes.py": ("volume.tmpfs.resized",),
    "tests/e2e/test_exclusive_cpus.py": tuple(
        f"podsync.{step}.SetContainerCpus" for step in ("saved", "published", "acted")
    ),
    "tests/machine/inside/user_namespaces.py": ("podsync.user_namespace.recorded",),
    "tests/e2e/test_kills_in_calls.py": tuple(f"podsync.{step}.EndTasks" for step in ("saved", "published", "acted")),
    "tests/service/podsync/test_node_shutdown.py": ("podsync.shutdown.saved", "podsync.shutdown.published"),
    "tests/service/podsync/test_log_rotation.py": tuple(
        f"podsync.logs.{step}" for step in ("removed", "packing", "packed", "renamed", "reopened", "aside")
    ),
}

# At these points no test kills; each with the reason why another point stands for it.
NOT_TRIED = {
    **dict.fromkeys(
        (f"podsync.{step}.FetchNode" for step in ("saved", "published", "calling", "acted")),
        "a read of the Node that no record and no other call follows from",
    ),
    **dict.fromkeys(
        (f"podsync.{step}.PullImage" for step in ("saved", "published", "calling", "acted")),
        "podsync.image.intent and .pulled are on the two sides of the same request",
    ),
    **dict.fromkeys(
        (f"volume.flex.{step}.expandfs" for step in ("calling", "answered")),
        "volume.calling.ExpandVolume and .acted are on the two sides of the same call",
    ),
    **dict.fromkeys(
        (f"podsync.{step}.RunPostStartHook" for step in ("saved", "published", "calling", "acted")),
        "tests/unit/podsync/sync/test_hooks.py kills at any step of a start and an end of a pod with this hook",
    ),
    **dict.fromkeys(
        (
            f"podsync.calling.{call}"
            for call in (*_SIMULATED_CALLS, "EndTasks", "ResizePod")
            if f"podsync.calling.{call}" not in OF_THE_MATRIX
        ),
        "the request may have been carried out or not: podsync.acted and .saved of the same call are the two cases",
    ),
}


def points_in_code() -> set[str]:
    """Return every name that a call of `crash_point` in the product can have."""
    found: set[str] = set()
    for room in ("bus", "services", "shared"):
        for path in (CHECKOUT / room).rglob("*.py"):
            if "crash_point(" not in (text := path.read_text(encoding="utf-8")):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "crash_point":
                    found.update(_names(node.args[0]))
    return found


def _names(argument: ast.expr) -> set[str]:
    if isinstance(argument, ast.Constant):
        return {str(argument.value)}
    assert isinstance(argument, ast.JoinedStr), ast.unparse(argument)
    names = {""}
    for part in argument.values:
        if isinstance(part, ast.Constant):
            names = {name + str(part.value) for name in names}
        else:
            assert isinstance(part, ast.FormattedValue)
            names = {name + value for name in names for value in PLACEHOLDERS[f"{{{ast.unparse(part.value)}}}"]}
    return names
