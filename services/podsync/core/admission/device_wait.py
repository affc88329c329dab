"""Decides for which device plugins the verdict on a pod waits, and whether devices that were chosen still count. Pure.

A plugin is not connected for some seconds while it or the machine restarts. A new pod waits for it, for at most as long
as the configuration says, and then gets the verdict that the kubelet would give it (node.md 4.15).
"""

from collections.abc import Mapping

from bus.messages.device_plugins import DeviceResource
from services.podsync.core.admission.node_view import NodeView
from services.podsync.core.placement.pod_placement import PodPlacement, unprepared_devices
from services.podsync.core.pod.device_need import AwaitedPlugin
from services.podsync.core.pod.instructions import DevicesOfContainer
from shared.model.objects import Object
from shared.podspec.resources import is_extended, main_containers, resource_list


def awaited_plugins(pod: Object, view: NodeView, placement: PodPlacement | None) -> tuple[AwaitedPlugin, ...]:
    """Return the plugins that the pod waits for, by resource. `placement`: what the pod has already, of which only the
    plugins count that have to prepare devices; None = nothing. Until it is known which resources have plugins, a pod
    that may need one waits without a bound: else it would be admitted without its devices, and never judged again."""
    if not view.waits_for_plugins and view.plugins_known:
        return ()
    prepared = [of.resource for _, of in unprepared_devices(placement)] if placement is not None else []
    found = []
    for name in sorted(_requested_names(pod) if placement is None else set(prepared)):
        resource = view.plugins.resources.get(name)
        if resource is None:
            found += [] if view.plugins_known else [AwaitedPlugin(resource=name)]
        elif view.waits_for_plugins and not resource.connected and (not resource.dropped or view.waited_for_plugins):
            found.append(AwaitedPlugin(resource=name, since=resource.since))
    return tuple(found)


def is_choice_void(placement: PodPlacement, resources: Mapping[str, DeviceResource]) -> bool:
    """Return whether devices that were chosen, and that their plugin has not prepared yet, are gone or unhealthy. While
    the plugin is not connected they count as they did before."""
    for _, of in unprepared_devices(placement):
        resource = resources.get(of.resource)
        if resource is None or not resource.connected:
            continue
        if not of.ids <= {device.id for device in resource.devices if device.healthy}:
            return True
    return False


def unprepared(placement: PodPlacement) -> tuple[DevicesOfContainer, ...]:
    """Return the devices that plugins have to prepare, by container and resource."""
    return tuple(
        DevicesOfContainer(container=name, resource=of.resource, ids=tuple(sorted(of.ids)))
        for name, of in unprepared_devices(placement)
    )


def _requested_names(pod: Object) -> set[str]:
    """Return the names of the extended resources that the pod requests."""
    names = set()
    for container in main_containers(pod):
        listed = (container.get("resources") or {}).get("limits") or ()
        if any(map(is_extended, listed)):
            limits = resource_list(container, "limits")
            names |= {name for name, amount in limits.items() if amount and is_extended(name)}
    return names
