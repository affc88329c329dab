"""configMap: keys of a ConfigMap of the pod's namespace as files on the disk (volumes.md 9.1)."""

from services.volume.core.files_source import Part, PartReader
from services.volume.plugins.files import FilesPlugin
from shared.model.objects import Object


class ConfigMapPlugin(FilesPlugin):
    """The only one of its kind that is not on a tmpfs."""

    name = "kubernetes.io/configmap"
    in_memory = False

    @classmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return the one ConfigMap."""
        return (reader.object("ConfigMap", source, "name"),)
