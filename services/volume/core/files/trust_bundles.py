"""Selects the ClusterTrustBundles of a projection, and returns the PEM text of their certificates (volumes.md 10.2);
pure."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from services.volume.core.files.object_key import ObjectKey
from shared.model import objects
from shared.model.fields import dictionaries, dictionary, text
from shared.model.objects import Object
from shared.podspec.node_selector import holds

BUNDLE, BUNDLES_OF_SIGNER = "ClusterTrustBundle", "ClusterTrustBundleList"
# A search takes linear time also in a text without an END.
_BLOCK = re.compile(r"-----BEGIN ([^\r\n-]+)-----\r?\n([^-]*)-----END \1-----")
_LINE_CHARACTERS = 64  # of base64

Requirement = tuple[str, str, tuple[str, ...]]  # a requirement of a label selector: label, operator, values


class TrustBundleError(Exception):
    """There are no trust anchors; the text is the kubelet's."""


class TrustBundlePart(Struct, frozen=True):
    """The trust anchors of one bundle, or of the bundles of a signer, as a file. `key`: of the bundle or of the
    signer's list; `selector`: the requirements on the labels of a signer's bundle, None = no bundle meets them."""

    key: ObjectKey
    path: str
    optional: bool = False
    selector: tuple[Requirement, ...] | None = None
    user: int | None = None  # the ID of the owner of the file


def trust_bundle_part(source: Object) -> TrustBundlePart | None:
    """Return a projection of type clusterTrustBundle; None = it names neither a bundle nor a signer."""
    path, optional = text(source.get("path")), source.get("optional") is True
    if source.get("name") is not None:
        return TrustBundlePart(ObjectKey(BUNDLE, "", text(source["name"])), path, optional)
    if source.get("signerName") is None:
        return None
    key = ObjectKey(BUNDLES_OF_SIGNER, "", text(source["signerName"]))
    return TrustBundlePart(key, path, optional, _requirements(source.get("labelSelector")))


def trust_anchors(part: TrustBundlePart, found: Object, salt: str) -> bytes:
    """Return the certificates of the bundles that the part selects from `found`, each once, as PEM. Their order depends
    on `salt`: it differs between pods, so that no program relies on it, and is always the same for one pod, so that its
    file changes only with the certificates. Raises TrustBundleError."""
    if part.key.kind == BUNDLE:
        bundles = [found]
    else:
        bundles = [bundle for bundle in dictionaries(found.get("items")) if _selects(part.selector, bundle)]
        if not bundles and not part.optional:
            raise TrustBundleError("combination of signerName and labelSelector matched zero ClusterTrustBundles")
    texts = (text(dictionary(bundle.get("spec")).get("trustBundle")) for bundle in bundles)
    certificates = {content for bundle in texts for content in certificates_of(bundle)}
    return b"".join(pem(content) for content in sorted(certificates, key=lambda content: _place(content, salt)))


def certificates_of(encoded: str) -> Iterator[bytes]:
    """Yield the content of each PEM block; the API server has checked that all are certificates without headers."""
    for _, block in _BLOCK.findall(encoded):
        try:
            yield base64.b64decode("".join(block.split()), validate=True)
        except (binascii.Error, ValueError):
            continue


def pem(content: bytes) -> bytes:
    """Return a certificate (DER) as PEM."""
    encoded = base64.b64encode(content).decode()
    lines = [encoded[at : at + _LINE_CHARACTERS] for at in range(0, len(encoded), _LINE_CHARACTERS)]
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""]).encode()


def _requirements(selector: object) -> tuple[Requirement, ...] | None:
    if not isinstance(selector, dict):
        return None
    equal = [(str(key), "In", (str(value),)) for key, value in dictionary(selector.get("matchLabels")).items()]
    expressions = [
        (text(expression.get("key")), text(expression.get("operator")), tuple(map(str, expression.get("values") or ())))
        for expression in dictionaries(selector.get("matchExpressions"))
    ]
    return (*equal, *expressions)


def _selects(requirements: Iterable[Requirement] | None, bundle: Object) -> bool:
    if requirements is None:
        return False
    labels = objects.labels(bundle)
    return all(
        holds({"key": key, "operator": operator, "values": values}, labels) for key, operator, values in requirements
    )


def _place(content: bytes, salt: str) -> bytes:
    return hashlib.blake2b(content, key=hashlib.sha256(salt.encode("utf-8", "replace")).digest()).digest()
