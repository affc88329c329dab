"""Maps each field of an entry of spec.volumes, or of the spec of a PersistentVolume, to its volume plugin.

A new type of volume is one file beside this one, one row here, and one in `shared/podspec/volume_types.py`;
CONTRIBUTING.md has the recipe.
"""

from collections.abc import Mapping
from typing import Any

from services.volume.core.specs.claim_expansion import expansion_of
from services.volume.core.specs.persistent_volume import PersistentVolume
from services.volume.core.specs.volume_spec import Node, Refused, Unprocessed, VolumeSpec
from services.volume.plugins.config_map import ConfigMapPlugin
from services.volume.plugins.csi import CsiPlugin
from services.volume.plugins.downward_api import DownwardApiPlugin
from services.volume.plugins.empty_dir import EmptyDirPlugin
from services.volume.plugins.fc import FcPlugin
from services.volume.plugins.flex_volume import FlexVolumePlugin
from services.volume.plugins.git_repo import GitRepoPlugin
from services.volume.plugins.host_path import HostPathPlugin
from services.volume.plugins.image import ImagePlugin
from services.volume.plugins.iscsi import IscsiPlugin
from services.volume.plugins.local import LocalPlugin
from services.volume.plugins.nfs import NfsPlugin
from services.volume.plugins.plugin import ExpandableVolumePlugin, VolumePlugin
from services.volume.plugins.projected import ProjectedPlugin
from services.volume.plugins.secret import SecretPlugin
from shared.model import objects
from shared.model.frozen_copy import replace
from shared.model.objects import Object
from shared.podspec.support import unmounted_types, why_unmounted

Plugins = Mapping[str, type[VolumePlugin[Any]]]

PLUGINS: Plugins = {
    "emptyDir": EmptyDirPlugin,
    "hostPath": HostPathPlugin,
    "image": ImagePlugin,
    "local": LocalPlugin,
    "nfs": NfsPlugin,
    "secret": SecretPlugin,
    "configMap": ConfigMapPlugin,
    "downwardAPI": DownwardApiPlugin,
    "projected": ProjectedPlugin,
    "csi": CsiPlugin,
    "gitRepo": GitRepoPlugin,
    "flexVolume": FlexVolumePlugin,
    "iscsi": IscsiPlugin,
    "fc": FcPlugin,
}
_DEFAULT = "emptyDir"  # the type of a volume without any source, as in the API


def volume_spec(pod: Object, name: str, node: Node, plugins: Plugins = PLUGINS) -> VolumeSpec | Refused:
    """Return what the pod's volume of this name, which has no claim, requests, or why it can never be mounted. Pure. Of
    a volume with several sources, the first one in the table counts."""
    volume = volume_of(pod, name)
    if volume is None:
        return Refused("the pod has no volume of that name")
    sources = {field: source for field, source in volume.items() if field != "name"} or {_DEFAULT: None}
    for field, plugin in plugins.items():
        if field not in sources:
            continue
        source = {} if sources[field] is None and field == _DEFAULT else sources[field]
        if isinstance(source, dict):
            spec = plugin.read(pod, name, source, node)
            key = f"{plugin.name}/{name}" if plugin.persistent else ""
            return replace(spec, key=key) if isinstance(spec, VolumeSpec) else spec
    return Refused(why_unmounted(min(sources)), unsupported=True)


def volume_of(pod: Object, name: str) -> Object | None:
    """Return the entry of spec.volumes with this name."""
    volumes: tuple[Object, ...] | list[Object] = (pod.get("spec") or {}).get("volumes") or ()
    return next((volume for volume in volumes if volume.get("name") == name), None)


def persistent_volume_spec(
    pod: Object, persistent: PersistentVolume, node: Node, plugins: Plugins = PLUGINS
) -> VolumeSpec | Refused:
    """Return what a volume of the pod with this PersistentVolume requests, or why it cannot be mounted. Pure."""
    for field, plugin in plugins.items():
        source = persistent.spec.get(field)
        if not isinstance(source, dict) or plugin.read_persistent is VolumePlugin.read_persistent:
            continue
        if persistent.mount_options and not plugin.mount_options:
            step = "MountVolume.MountOptionSupport check"
            return Refused("mount options are not supported for this volume type", step)
        if persistent.has_affinity and node.labels is None:
            return Unprocessed("")
        spec = plugin.read_persistent(pod, replace(persistent, node=node), source)
        if isinstance(spec, Refused):
            return spec
        may_grow = issubclass(plugin, ExpandableVolumePlugin)
        expansion = expansion_of(replace(persistent, node=node)) if may_grow else None
        grows = expansion is not None and not spec.read_only
        return replace(
            spec,
            key=f"{plugin.name}/{persistent.name}",
            claim=f"{objects.namespace(persistent.claim)}/{objects.name(persistent.claim)}" if persistent.claim else "",
            capacity=expansion.size if grows and expansion is not None else persistent.claim_capacity,
            expansion=expansion,
            group=persistent.group,
            one_pod=persistent.one_pod,
            elsewhere=not persistent.is_for(node),
            migrated=persistent.migrated,
        )
    types = unmounted_types(persistent.spec)
    why = f"err=no volume plugin matched: {why_unmounted(types[0])}" if types else "err=no volume plugin matched"
    text = f'failed to get Plugin from volumeSpec for volume "{persistent.name}" {why}'
    return Unprocessed(text, unsupported=bool(types))
