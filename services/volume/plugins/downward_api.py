"""downwardAPI: fields of the pod as files on a tmpfs (volumes.md 9.3)."""

from services.volume.core.files_source import Part, PartReader
from services.volume.plugins.files import FilesPlugin
from shared.model.objects import Object


class DownwardApiPlugin(FilesPlugin):
    """It needs no API server: the pod is all that it shows."""

    name = "kubernetes.io/downward-api"

    @classmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return the fields."""
        return (reader.downward(source),)
