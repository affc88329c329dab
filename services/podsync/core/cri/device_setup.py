"""Merges what the device plugins have answered for the devices of one container, and decides which plugins are called
before it starts (node.md 4.15, pods.md 6.2).

The resources are taken in the order of their names. Of two answers that name the same variable, path in the container
or annotation the first counts, as in the kubelet.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from bus.messages.device_plugins import DeviceMount, DeviceResource
from services.podsync.core.cri.config_errors import ContainerConfigError
from services.podsync.core.cri.message import message
from services.podsync.core.placement.pod_placement import ContainerDevices, PodPlacement
from shared.cri.interface import Message
from shared.podspec.exec_space import MAX_SPACE_BYTES, MAX_STRING_BYTES, ExecSpace, TooLongError, utf8_length

_MAX_SHOWN_CHARACTERS = 256  # of a name in an error


class DeviceSetup(Struct, frozen=True, kw_only=True):
    """Has what a container needs for its devices."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[DeviceMount, ...] = ()  # before those of the container
    devices: tuple[Message, ...] = ()  # CRI Devices, before block volumes
    annotations: Mapping[str, str] = field(default_factory=dict)  # those of the agent override them
    cdi_devices: tuple[Message, ...] = ()


NO_DEVICES = DeviceSetup()


def device_setup(placement: PodPlacement, container: str) -> DeviceSetup:
    """Return what the container needs for the devices that it was given. Raises ContainerConfigError where a plugin has
    not answered what they need: without it the container would start without its devices."""
    given = placement.containers.get(container)
    if given is None or not given.devices:
        return NO_DEVICES
    envs: dict[str, str] = {}
    mounts: dict[str, DeviceMount] = {}
    devices: dict[str, Message] = {}
    annotations: dict[str, str] = {}
    cdi_devices: dict[str, Message] = {}
    for of_resource in sorted(given.devices, key=lambda devices: devices.resource):
        setup = of_resource.setup
        if setup is None:
            raise ContainerConfigError(f"the device plugin of {of_resource.resource} has not allocated the devices yet")
        envs = {**setup.envs, **envs}
        annotations = {**setup.annotations, **annotations}
        for mount in setup.mounts:
            mounts.setdefault(mount.container_path, mount)
        for node in setup.devices:
            of_node = message(
                container_path=node.container_path, host_path=node.host_path, permissions=node.permissions
            )
            devices.setdefault(node.container_path, of_node)
        for name in setup.cdi_devices:
            cdi_devices.setdefault(name, message(name=name))
    return DeviceSetup(
        envs=envs,
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        annotations=annotations,
        cdi_devices=tuple(cdi_devices.values()),
    )


def devices_to_prepare(
    placement: PodPlacement, container: str, resources: Mapping[str, DeviceResource], *, known: bool
) -> tuple[ContainerDevices, ...]:
    """Return the devices of the container whose plugins must be called before each of its starts. `resources`: those of
    the device plugins by name; `known`: whether they are complete. Raises ContainerConfigError where it is not known
    yet what a plugin requires."""
    given = placement.containers.get(container)
    devices = sorted(given.devices, key=lambda each: each.resource) if given is not None else ()
    for each in devices:
        if not known and each.resource not in resources:
            raise ContainerConfigError(f"the device plugin of {each.resource} is not known yet")
    found = ((each, resources.get(each.resource)) for each in devices)
    return tuple(each for each, resource in found if resource is not None and resource.pre_start_required)


def with_device_variables(setup: DeviceSetup, env: dict[str, str], space: ExecSpace) -> dict[str, str]:
    """Return the environment with the variables of the devices before the others. Where `env` has a variable of the
    same name, that one counts. Those that are added are counted in `space`. Raises ContainerConfigError."""
    added = {name: value for name, value in setup.envs.items() if name not in env}
    for name, value in added.items():
        variable = f"{name}={value}"
        shown = f'environment variable "{name[:_MAX_SHOWN_CHARACTERS]}" of a device plugin'
        if utf8_length(variable) > MAX_STRING_BYTES:
            raise ContainerConfigError(f"{shown} is too long: the kernel takes {MAX_STRING_BYTES} bytes of NAME=value")
        try:
            space.take(variable)
        except TooLongError:
            raise ContainerConfigError(
                f"{shown} does not fit: the kernel takes {MAX_SPACE_BYTES} bytes of environment, command and args "
                "together"
            ) from None
    return {**added, **env} if added else env
