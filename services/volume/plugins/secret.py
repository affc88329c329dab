"""secret: keys of a Secret of the pod's namespace as files on a tmpfs (volumes.md 9.2)."""

from services.volume.core.files_source import Part, PartReader
from services.volume.plugins.files import FilesPlugin
from shared.model.objects import Object


class SecretPlugin(FilesPlugin):
    """Its content is never on disk."""

    name = "kubernetes.io/secret"

    @classmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return the one Secret."""
        return (reader.object("Secret", source, "secretName"),)
