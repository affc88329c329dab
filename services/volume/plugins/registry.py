"""The one table of volume plugins: which field of an entry of spec.volumes belongs to which plugin.

A new type of volume is one file beside this one and one row here.
"""

from collections.abc import Mapping
from typing import Any

from services.volume.core.volume_spec import Node, Refused, VolumeSpec
from services.volume.plugins.config_map import ConfigMapPlugin
from services.volume.plugins.downward_api import DownwardApiPlugin
from services.volume.plugins.empty_dir import EmptyDirPlugin
from services.volume.plugins.host_path import HostPathPlugin
from services.volume.plugins.image import ImagePlugin
from services.volume.plugins.plugin import VolumePlugin
from services.volume.plugins.projected import ProjectedPlugin
from services.volume.plugins.secret import SecretPlugin
from shared.model.objects import Object

Plugins = Mapping[str, type[VolumePlugin[Any]]]

PLUGINS: Plugins = {
    "emptyDir": EmptyDirPlugin,
    "hostPath": HostPathPlugin,
    "image": ImagePlugin,
    "secret": SecretPlugin,
    "configMap": ConfigMapPlugin,
    "downwardAPI": DownwardApiPlugin,
    "projected": ProjectedPlugin,
}
_DEFAULT = "emptyDir"  # of a volume without any source, as in the API


def volume_spec(pod: Object, name: str, node: Node, plugins: Plugins = PLUGINS) -> VolumeSpec | Refused:
    """Return what the pod's volume of this name asks for, or why it can never be mounted. Pure; of a volume with
    several sources the first one in the table counts."""
    volumes = (pod.get("spec") or {}).get("volumes") or ()
    volume = next((volume for volume in volumes if volume.get("name") == name), None)
    if volume is None:
        return Refused("the pod has no volume of that name")
    sources = {field: source for field, source in volume.items() if field != "name"} or {_DEFAULT: None}
    for field, plugin in plugins.items():
        if field not in sources:
            continue
        if node.alone and (reason := plugin.needs_api_server(name)):
            return Refused(reason)
        source = {} if sources[field] is None and field == _DEFAULT else sources[field]
        if isinstance(source, dict):
            return plugin.read(pod, name, source, node)
    return Refused(f"volume type {min(sources)} is not supported yet")
