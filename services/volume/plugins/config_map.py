"""Sets up configMap volumes: keys of a ConfigMap of the pod's namespace as files on the disk (volumes.md 9.1)."""

from services.volume.core.files.files_source import Part, PartReader
from services.volume.plugins.files import FilesPlugin
from shared.model.objects import Object


class ConfigMapPlugin(FilesPlugin):
    """Sets up configMap volumes, the only volumes of files that are not on a tmpfs."""

    name = "kubernetes.io/configmap"
    in_memory = False

    @classmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return the keys of the ConfigMap as the only part."""
        return (reader.object("ConfigMap", source, "name"),)
