"""Decides which CDI devices a specification file has; pure."""

from typing import Any

from shared.model.fields import dictionaries, dictionary


def device_names(specification: Any) -> frozenset[str]:
    """Return the qualified names of its devices, such as `example.com/gpu=0`; none of what is no specification."""
    found = dictionary(specification)
    kind = found.get("kind")
    if not isinstance(kind, str):
        return frozenset()
    names = (device.get("name") for device in dictionaries(found.get("devices")))
    return frozenset(f"{kind}={name}" for name in names if isinstance(name, str | int))
