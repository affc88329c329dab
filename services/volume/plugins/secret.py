"""Sets up secret volumes: keys of a Secret of the pod's namespace as files on a tmpfs (volumes.md 9.2)."""

from services.volume.core.files.files_source import Part, PartReader
from services.volume.plugins.files import FilesPlugin
from shared.model.objects import Object


class SecretPlugin(FilesPlugin):
    """Sets up secret volumes, whose content is never on disk."""

    name = "kubernetes.io/secret"

    @classmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return the keys of the Secret as the only part."""
        return (reader.object("Secret", source, "secretName"),)
