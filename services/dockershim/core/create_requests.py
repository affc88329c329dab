"""Bodies of Docker's POST /containers/create for a PodSandboxConfig and for a ContainerConfig. Pure."""

import posixpath
from typing import Any

from msgspec import Struct

from services.dockershim.core.errors import unsupported
from services.dockershim.core.identity import (
    CONTAINER,
    IMAGE,
    LOG_PATH,
    SANDBOX,
    SANDBOX_ID,
    Identity,
    labels_of,
)
from services.dockershim.core.resources import resources_of
from services.dockershim.core.security import namespaces_of, security_of

Body = dict[str, Any]

SANDBOX_OOM_SCORE = -998  # of the pause process, as the kubelet's own sandboxes have it
_MIN_OOM_SCORE_OF_CHILD = -1000
_SANDBOX_SHARES = 2
# The JSON files of Docker are copied into CRI's logs as they grow; more than this is lost while the shim does not run.
LOG_CONFIG = {
    "Type": "json-file",
    "Config": {"max-size": "16m", "max-file": "5", "compress": "false", "mode": "blocking"},
}
_PROPAGATIONS = ("rprivate", "rslave", "rshared")  # by CRI number


class Host(Struct, frozen=True):
    """What the shim and the machine add to each request."""

    sandbox_image: str
    oom_score_floor: int = _MIN_OOM_SCORE_OF_CHILD  # Docker may not be allowed to give a process a lower one


def sandbox_identity(config: Any) -> Identity:
    """Return the identity of the sandbox of a PodSandboxConfig."""
    meta = config.metadata
    return Identity("", meta.name, meta.namespace, meta.uid, meta.attempt)


def container_identity(config: Any, sandbox: Identity) -> Identity:
    """Return the identity of a ContainerConfig in this sandbox."""
    return Identity(config.metadata.name, sandbox.name, sandbox.namespace, sandbox.uid, config.metadata.attempt)


def sandbox_body(config: Any, host: Host, runtime_handler: str, allowed: str) -> Body:
    """Return the request for a sandbox: a pause process that holds the namespaces. `allowed`: the seccomp profile.
    Raises CallError."""
    security = config.linux.security_context
    options = security_of(security, allowed, is_sandbox=True)
    host_config: Body = {
        **options,
        **namespaces_of(security.namespace_options, sandbox=""),
        "CgroupParent": _cgroup_parent(config.linux.cgroup_parent),
        "CpuShares": _SANDBOX_SHARES,
        "LogConfig": {"Type": "none", "Config": {}},
        "OomScoreAdj": max(SANDBOX_OOM_SCORE, host.oom_score_floor),
        "RestartPolicy": {"Name": "no"},
        "Sysctls": dict(config.linux.sysctls),
        **({"Runtime": runtime_handler} if runtime_handler else {}),
    }
    if host_config["NetworkMode"] == "host" and config.HasField("dns_config"):
        # Such a sandbox is ready once it runs: so is its resolv.conf, where a kill prevents that the shim writes it.
        dns = config.dns_config
        host_config |= {"Dns": [*dns.servers], "DnsSearch": [*dns.searches], "DnsOptions": [*dns.options]}
    user = user_of(security)
    return {
        "Image": host.sandbox_image,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": labels_of(SANDBOX, config, {}),
        "HostConfig": host_config,
        **({"Hostname": config.hostname} if config.hostname and host_config["NetworkMode"] != "host" else {}),
        **({"User": user} if user else {}),
    }


def container_body(config: Any, sandbox_config: Any, sandbox_id: str, image_id: str, host: Host, allowed: str) -> Body:
    """Return the request for a container of a sandbox. Raises CallError."""
    security = config.linux.security_context
    log_path = f"{sandbox_config.log_directory}/{config.log_path}" if config.log_path else ""
    binds, mounts = _mounts(config.mounts)
    host_config: Body = {
        **security_of(security, allowed, is_sandbox=False),
        **namespaces_of(security.namespace_options, sandbox=sandbox_id),
        **resources_of(config.linux.resources),
        "CgroupParent": _cgroup_parent(sandbox_config.linux.cgroup_parent),
        "OomScoreAdj": max(config.linux.resources.oom_score_adj, host.oom_score_floor),
        "Binds": binds,
        "Mounts": mounts,
        "Devices": [
            {"PathOnHost": d.host_path, "PathInContainer": d.container_path, "CgroupPermissions": d.permissions}
            for d in config.devices
        ],
        "LogConfig": LOG_CONFIG,
        "RestartPolicy": {"Name": "no"},
    }
    if config.CDI_devices:
        raise unsupported(f"CDI device {config.CDI_devices[0].name}; this needs a CRI runtime such as containerd 1.7")
    user = user_of(security)
    body: Body = {
        "Image": image_id,
        "Labels": labels_of(CONTAINER, config, {SANDBOX_ID: sandbox_id, LOG_PATH: log_path, IMAGE: config.image.image}),
        "HostConfig": host_config,
        "Healthcheck": {"Test": ["NONE"]},  # Docker would run the check of the image; the agent probes
        "Env": [f"{pair.key}={pair.value}" for pair in config.envs],
        "OpenStdin": config.stdin,
        "StdinOnce": config.stdin_once,
        "Tty": config.tty,
    }
    if config.command:
        body["Entrypoint"] = list(config.command)
    if config.args:
        body["Cmd"] = list(config.args)
    elif config.command:
        body["Cmd"] = []  # a command without arguments does not get those of the image
    if config.working_dir:
        body["WorkingDir"] = config.working_dir
    if user:
        body["User"] = user
    return body


def user_of(security: Any) -> str:
    """Return Docker's `User` of a security context: uid or name, and the group; "" = the image's."""
    user = str(security.run_as_user.value) if security.HasField("run_as_user") else ""
    if not user:
        user = getattr(security, "run_as_username", "")
    if security.HasField("run_as_group"):
        if not user:
            raise unsupported("a group without a user (runAsGroup without runAsUser)")
        return f"{user}:{security.run_as_group.value}"
    return user


def _cgroup_parent(path: str) -> str:
    """Return Docker's name of a cgroup: with the driver systemd that of the slice, which says by itself where it is."""
    return posixpath.basename(path) if path.endswith(".slice") else path


def _mounts(mounts: Any) -> tuple[list[str], list[Body]]:
    """Return Docker's binds, which alone can relabel for SELinux, and mounts, which take any path."""
    binds: list[str] = []
    bodies: list[Body] = []
    for mount in mounts:
        if mount.HasField("image") and mount.image.image:
            raise unsupported("a volume that is an image")
        if mount.recursive_read_only:
            raise unsupported("recursively read-only mounts")
        if mount.uidMappings or mount.gidMappings:
            raise unsupported("mounts with mapped ids")
        propagation = _PROPAGATIONS[mount.propagation]
        if mount.selinux_relabel:
            if ":" in mount.host_path + mount.container_path:
                raise unsupported(f"an SELinux label for a mount with a colon in its path, {mount.host_path}")
            access = "ro" if mount.readonly else "rw"
            binds.append(f"{mount.host_path}:{mount.container_path}:{access},Z,{propagation}")
            continue
        bodies.append(
            {
                "Type": "bind",
                "Source": mount.host_path,
                "Target": mount.container_path,
                "ReadOnly": mount.readonly,
                "BindOptions": {"Propagation": propagation},
            }
        )
    return binds, bodies
