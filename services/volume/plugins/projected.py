"""Sets up projected volumes: Secrets, ConfigMaps, fields of the pod, tokens, trust anchors and certificates (volumes.md
9.4)."""

from services.volume.core.files.files_source import Part, PartReader, RefusedPart
from services.volume.plugins.files import FilesPlugin
from shared.model.fields import dictionaries
from shared.model.objects import Object


class ProjectedPlugin(FilesPlugin):
    """Sets up projected volumes, which show several sources as one directory."""

    name = "kubernetes.io/projected"

    @classmethod
    def parts(cls, reader: PartReader, volume: str, source: Object) -> tuple[Part, ...]:
        """Return one part for each source. A source of an unsupported type is an error of set-up."""
        listed = dictionaries(source.get("sources"))
        return tuple(_part(reader, volume, index, part) for index, part in enumerate(listed))


def _part(reader: PartReader, volume: str, index: int, source: Object) -> Part:
    match source:
        case {"secret": dict() as inner}:
            return reader.object("Secret", inner, "name")
        case {"configMap": dict() as inner}:
            return reader.object("ConfigMap", inner, "name")
        case {"downwardAPI": dict() as inner}:
            return reader.downward(inner)
        case {"serviceAccountToken": dict() as inner}:
            return reader.token(inner)
        case {"clusterTrustBundle": dict() as inner}:
            return reader.trust_bundle(inner)
        case {"podCertificate": dict() as inner}:
            return reader.certificate(volume, index, inner)
    return RefusedPart(f"projection of {', '.join(sorted(map(str, source))) or 'nothing'} is not supported")
