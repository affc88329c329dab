"""pods.md 6.7: the ids of a pod with a user namespace of its own, in every place that has them."""

from services.podsync.core.cri.user_namespaces import Mappings
from tests.unit.podsync.cri.golden.case import SECURITY, Case, volume

GIVEN = Mappings(((131072, 0, 65536),), ((131072, 0, 65536),))
IDS = [{"host_id": 131072, "length": 65536}]  # container id 0 is the zero value
ON_MOUNT = {"uidMappings": IDS, "gidMappings": IDS}
OPTIONS = {f"{SECURITY}:namespace_options:userns_options": {"uids": IDS, "gids": IDS}}
MOUNTS = [
    {"container_path": "/etc/hosts", "host_path": "/pods/U/etc-hosts", **ON_MOUNT},
    {"container_path": "/dev/termination-log", "host_path": "/pods/U/containers/c/0a1b2c3d", **ON_MOUNT},
]
ABLE = {"user_namespaces": True}

CASES = (
    Case(name="the host's users expressly", spec={"hostUsers": True}, node=ABLE),
    Case(name="the host's users where the runtime could do otherwise", node=ABLE),
    Case(
        name="users of its own",
        spec={"hostUsers": False},
        node=ABLE,
        given={"mappings": GIVEN},
        sandbox=OPTIONS,
        message={**OPTIONS, "mounts": MOUNTS},
    ),
    Case(
        name="users of its own, by a runtime class",
        spec={"hostUsers": False, "runtimeClassName": "kata"},
        node={**ABLE, "runtime_handler": "kata"},
        given={"mappings": GIVEN},
        sandbox=OPTIONS,
        message={**OPTIONS, "mounts": MOUNTS},
    ),
    Case(
        name="users of its own on the mount of a volume",
        container={"volumeMounts": [{"name": "v", "mountPath": "/data"}]},
        spec={"hostUsers": False, "volumes": [{"name": "v", "emptyDir": {}}]},
        node=ABLE,
        given={"mappings": GIVEN, "volumes": volume("/pods/U/v")},
        sandbox=OPTIONS,
        message={
            **OPTIONS,
            "mounts": [{"container_path": "/data", "host_path": "/pods/U/v", **ON_MOUNT}, *MOUNTS],
        },
    ),
    Case(
        name="users of its own and all of /proc",
        container={"securityContext": {"procMount": "Unmasked", "runAsUser": 5}},
        spec={"hostUsers": False},
        node=ABLE,
        given={"mappings": GIVEN},
        sandbox=OPTIONS,
        message={
            **OPTIONS,
            "mounts": MOUNTS,
            f"{SECURITY}:masked_paths": None,
            f"{SECURITY}:readonly_paths": None,
            f"{SECURITY}:run_as_user": {"value": 5},
        },
    ),
)
