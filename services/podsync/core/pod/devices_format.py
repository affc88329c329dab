"""Converts the devices of a container to what the pod's record has of them, and back. Reads and writes no file.

[{"resource": "example.com/gpu", "ids": ["gpu-0"], "setup": {"envs": {"VISIBLE": "0"}, "devices": [...], ...}}]

Without "setup" the plugin has not answered Allocate yet.
"""

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from bus.messages.device_plugins import MAX_DEVICES, MAX_RESOURCES, AllocatedDevices, DeviceMount, DeviceNode
from services.podsync.core.placement.pod_placement import ContainerDevices


def plain_devices(devices: Sequence[ContainerDevices]) -> list[dict[str, Any]]:
    """Return the devices as JSON has them."""
    return [_plain(given) for given in devices]


def read_devices(saved: list[dict[str, Any]]) -> tuple[ContainerDevices, ...]:
    """Return what `plain_devices` wrote. Raises KeyError, TypeError, ValueError or AttributeError where a value is not
    understood."""
    if len(saved) > MAX_RESOURCES:
        raise ValueError(f"devices of {len(saved)} resources")
    return tuple(map(_read, saved))


def _plain(given: ContainerDevices) -> dict[str, Any]:
    plain: dict[str, Any] = {"resource": given.resource, "ids": sorted(given.ids)}
    if given.setup is None:
        return plain
    setup = to_builtins(given.setup).items()
    setup = {name: list(value) if isinstance(value, tuple) else value for name, value in setup if value}
    return {**plain, "setup": setup}


def _read(given: dict[str, Any]) -> ContainerDevices:
    listed = [_text(each) for each in given["ids"]]
    if len(listed) > MAX_DEVICES:
        raise ValueError(f"{len(listed)} devices of one resource")
    setup = _setup(given["setup"]) if "setup" in given else None
    return ContainerDevices(resource=_text(given["resource"]), ids=frozenset(listed), setup=setup)


def _setup(saved: dict[str, Any]) -> AllocatedDevices:
    return AllocatedDevices(
        envs=_texts(saved.get("envs", {})),
        mounts=tuple(
            DeviceMount(
                container_path=_text(mount["container_path"]),
                host_path=_text(mount["host_path"]),
                read_only=bool(mount["read_only"]),
            )
            for mount in saved.get("mounts", ())
        ),
        devices=tuple(
            DeviceNode(
                container_path=_text(node["container_path"]),
                host_path=_text(node["host_path"]),
                permissions=_text(node["permissions"]),
            )
            for node in saved.get("devices", ())
        ),
        annotations=_texts(saved.get("annotations", {})),
        cdi_devices=tuple(_text(name) for name in saved.get("cdi_devices", ())),
    )


def _texts(saved: dict[str, str]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in saved.items()}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:80]!r} is no text")
    return value
