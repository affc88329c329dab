"""Sets up downwardAPI volumes: fields of the pod as files on a tmpfs (volumes.md 9.3)."""

from services.volume.core.files.files_source import Part, PartReader
from services.volume.plugins.files import FilesPlugin
from shared.model.objects import Object


class DownwardApiPlugin(FilesPlugin):
    """Sets up downwardAPI volumes. They need no API server, because they show only the pod."""

    name = "kubernetes.io/downward-api"

    @classmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return the fields of the pod as the only part."""
        return (reader.downward(source),)
