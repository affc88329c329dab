"""Every field of a pod: absent, null, empty, of the wrong type, beyond its range. What is wrong is named in one line;
what is let through can be run: nothing behind the validation raises but its own named errors."""

import re
from typing import Any

import pytest

from services.pleg.core.probe_spec import probes_of
from services.podsync.core.cgroups import pod_cgroup
from services.podsync.core.cri import container_mounts, environment, hosts_file, sandbox_config
from services.podsync.core.cri.config_errors import ContainerConfigError, SandboxConfigError
from services.podsync.core.cri.container_config import container_config
from services.podsync.core.cri.container_inputs import ContainerInputs
from services.podsync.core.cri.container_mounts import MountedVolume
from services.volume.core.specs.volume_spec import Node, Refused
from services.volume.plugins.registry import volume_spec
from shared.cri.interface import ImageStatus
from shared.model.objects import Object
from shared.podspec.defaults import apply_defaults
from shared.podspec.ports import host_ports
from shared.podspec.qos import qos_class
from shared.podspec.references import api_reference, referenced_objects
from shared.podspec.resources import pod_limits, pod_requests, status_resources
from shared.podspec.schema import POD, plain_copy, type_errors
from shared.podspec.static_pod import InvalidPod, static_pod
from tests.unit.podspec.everything import (
    ABSENT,
    NOT_STATIC,
    Path,
    changed,
    everything,
    paths_of,
    replacements,
    schema_paths,
    text_of,
)
from tests.unit.podsync.cri.container_messages import NODE

_FIELD = re.compile(r"(spec|metadata)[.:]|apiVersion|kind")
PLACES = [(path, shape) for path, shape in paths_of(everything(), POD) if path]
SHARED_OUT = [  # every place, and every sixth in the short lane
    pytest.param(path, shape, id=text_of(path), marks=[pytest.mark.long] if number % 6 else [])
    for number, (path, shape) in enumerate(PLACES)
]


def read(document: Any) -> Object:
    return static_pod(document, node_name="n", source="file", origin="/m/p.yaml")


def run(pod: Object, path: Path) -> None:
    """Everything that reads a spec on the way to the runtime; of the containers the one that has the place."""
    facts = NODE
    qos_class(pod), host_ports(pod), pod_requests(pod), pod_limits(pod), status_resources(pod)
    referenced_objects(pod), api_reference(pod), list(probes_of(pod))
    pod_cgroup.pod_cgroup_name(pod, facts), pod_cgroup.pod_cgroup_values(pod, facts)
    try:
        hosts_file.hosts_file(pod, ("10.0.0.5",), "cluster.local", "")
        sandbox_config.sandbox_config(pod, facts=facts, attempt=0)
    except (SandboxConfigError, ContainerConfigError) as error:
        assert error.message
    names = [volume.get("name") for volume in pod["spec"].get("volumes") or ()]
    for name in names:
        source = volume_spec(pod, str(name), Node(memory=1 << 30))
        assert not isinstance(source, Refused) or source.reason
    images = {v["name"]: "sha256:1" for v in pod["spec"].get("volumes") or () if "image" in v and v.get("name")}
    kind = path[1] if path[2:] and path[1] in ("initContainers", "containers") else "containers"
    index = path[2] if path[2:] and kind == path[1] and isinstance(path[2], int) else 0
    for container in (pod["spec"].get(kind) or [])[index : index + 1]:
        try:
            environment.environment_references(container)
            files = {where: environment.EnvFile({"K": "v"}) for where in environment.environment_files(container)}
            env = {"A": "a"}
            wanted = container_mounts.wanted_subpaths(container, env, images)
            container_config(
                pod,
                container,
                ContainerInputs(
                    restart_count=0,
                    image_ref="sha256:1",
                    image=ImageStatus(id="sha256:1", size=1, uid=1000),
                    pod_ips=("10.0.0.5",),
                    volumes={str(name): MountedVolume(host_path="/v") for name in names},
                    subpaths=dict.fromkeys(wanted, "/v/sub"),
                    etc_hosts_path="/r/etc-hosts",
                    termination_path="/r/t",
                    service_env={},
                    references={},
                    env_files=files,
                    image_volumes=images,
                ),
                facts=facts,
            )
        except ContainerConfigError as error:
            assert error.message


def one_line(text: str) -> bool:
    return bool(text) and "\n" not in text and len(text) < 5000


def test_the_whole_pod_is_valid_and_runs() -> None:
    for kind, number in (("initContainers", 0), ("initContainers", 1), ("containers", 0), ("containers", 1)):
        run(read(everything()), ("spec", kind, number))


def test_the_pod_has_every_field_of_the_schema() -> None:
    used = {_alike(re.sub(r"\[\d+\]", "[]", text_of(path))) for path, _ in PLACES}
    missing = [path for path in schema_paths() if _alike(path) not in used and not path.startswith(NOT_STATIC)]
    assert missing == [""]


def _alike(path: str) -> str:
    """Probes have one shape, and so have hooks."""
    return re.sub(r"\.(liveness|readiness|startup)Probe\b", ".probe", re.sub(r"\.(postStart|preStop)\b", ".hook", path))


@pytest.mark.share(4)
@pytest.mark.parametrize(("path", "shape"), SHARED_OUT)
def test_a_field_of_a_static_pod(path: Path, shape: Any) -> None:
    document = everything()
    for value, is_wrong in replacements(shape):
        what = f"{text_of(path)} = {'absent' if value is ABSENT else repr(value)[:60]}"
        if value is ABSENT and isinstance(path[-1], int):
            continue
        try:
            pod = read(changed(document, path, value))
        except InvalidPod as error:
            assert one_line(str(error)), what
            assert _FIELD.search(str(error)) or "is needed" in str(error) or "may not reference" in str(error), what
            if is_wrong:
                assert text_of(path) in str(error), (what, str(error))
            continue
        assert not is_wrong, what
        try:
            run(pod, path)
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


@pytest.mark.long
@pytest.mark.share(4)
@pytest.mark.parametrize(("path", "shape"), SHARED_OUT)
def test_a_field_of_an_api_pod_whatever_the_api_server_let_through(path: Path, shape: Any) -> None:
    document = everything()
    for value, is_wrong in replacements(shape):
        what = f"{text_of(path)} = {'absent' if value is ABSENT else repr(value)[:60]}"
        if is_wrong or (value is ABSENT and isinstance(path[-1], int)) or path[0] in ("apiVersion", "kind", "metadata"):
            continue
        pod, errors = plain_copy(changed(document, path, value), nul=True)
        if errors or type_errors(pod):
            continue
        pod.setdefault("spec", {})
        try:
            apply_defaults(pod)
            run(pod, path)
        except AssertionError:
            raise
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
