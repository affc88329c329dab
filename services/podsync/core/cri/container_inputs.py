"""Has what the configuration of one container is built from, besides its pod's spec and the node."""

from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from services.podsync.core.cri.container_mounts import MountedVolume
from services.podsync.core.cri.environment import EnvFiles, References
from services.podsync.core.cri.user_namespaces import Mappings
from services.podsync.core.pod.allocation import Allocation
from shared.cri.interface import ImageStatus


class ContainerInputs(Struct, frozen=True, kw_only=True):
    """Has the inputs for one attempt of a container. The mappings are never changed in place."""

    restart_count: int  # also the attempt
    image_ref: str  # the result of the pull, or the id of the image that was present
    image: ImageStatus  # as the runtime reports it
    pod_ips: Sequence[str]
    allocation: Allocation | None = None  # what the node has allocated to the pod; None = what its spec lists
    volumes: Mapping[str, MountedVolume] = field(default_factory=dict)  # pod volume name -> its path on the host
    # Index of the volumeMount -> prepared host path, for mounts with subPath or subPathExpr
    # (`container_mounts.wanted_subpaths`).
    subpaths: Mapping[int, str] = field(default_factory=dict)
    etc_hosts_path: str = ""  # the written `pods/<uid>/etc-hosts`; used where `container_mounts.needs_etc_hosts`
    termination_path: str = ""  # the empty termination-message file, "" = none
    service_env: Mapping[str, str] = field(default_factory=dict)  # variables of services
    references: References = field(default_factory=dict)  # the ConfigMaps and Secrets of its environment
    env_files: EnvFiles = field(default_factory=dict)  # the files of its environment
    image_volumes: Mapping[str, str] = field(default_factory=dict)  # volume name -> reference of its image as pulled
    target_id: str = ""  # id of the container whose processes an ephemeral one is to see, "" = none
    mappings: Mappings | None = None  # of the pod's user namespace; None = it has none
    claim_devices: Sequence[str] = ()  # names of CDI devices of its resource claims
    volume_groups: Sequence[int] = ()  # group ids that the pod's persistent volumes give to its processes
