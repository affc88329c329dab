"""Makes the files of a volume from objects and tokens: keys, modes, owners, and the kubelet's texts for what is
missing (volumes.md 9). Pure. No text and no repr contains content."""

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from services.volume.core.files.files_source import (
    DownwardPart,
    Files,
    Item,
    ObjectPart,
    Part,
    RefusedPart,
    TokenPart,
)
from services.volume.core.files.object_key import ObjectKey
from services.volume.core.files.pod_certificates import (
    NOT_ISSUED,
    CertificateKey,
    CertificatePart,
    Credential,
    files_of,
)
from services.volume.core.files.token_cache import TokenKey
from services.volume.core.files.trust_bundles import TrustBundleError, TrustBundlePart, trust_anchors
from shared.model.objects import Object

TOKEN_MODE = 0o600
MAX_USER_ID = 2**31 - 1


class FailureKind(IntEnum):
    """How long a failure is expected to last. LAGGING: the API server does not have the binding of the pod yet;
    UNANSWERED: the other process does not answer. Both are expected to end soon, and are not reported at first.
    LASTING: any other failure."""

    LASTING = 0
    LAGGING = 1
    UNANSWERED = 2


class Problem(msgspec.Struct, frozen=True):
    """The reason why a part of a volume has no content."""

    text: str
    kind: FailureKind = FailureKind.LASTING


class ContentError(Exception):
    """The volume's content cannot be made; the text is the inner one of the FailedMount message."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        found = list(problems)
        texts = list(dict.fromkeys(problem.text for problem in found))
        super().__init__(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        self.kind = min((problem.kind for problem in found), default=FailureKind.LASTING)


@dataclass(frozen=True)
class PayloadFile:
    """One file of a volume. `mode`: permission bits; `owner`: a user ID, None = ours."""

    content: bytes = field(repr=False)
    mode: int
    owner: int | None = None


Payload = Mapping[str, PayloadFile]
MAX_PAYLOAD_BYTES = 32 << 20  # of one volume, also those that a later part replaces; an object has at most 1 MiB


@dataclass(frozen=True)
class FoundObject:
    """An object as sources returned it, or why there is none."""

    object: Object | None = field(default=None, repr=False)
    not_found: bool = False
    problem: Problem | None = None

    @property
    def version(self) -> str:
        """Return metadata.resourceVersion; "" = there is none."""
        metadata = (self.object or {}).get("metadata")
        return str(metadata.get("resourceVersion") or "") if isinstance(metadata, dict) else ""


@dataclass(frozen=True)
class FoundToken:
    """A token, or why there is none. `expiration`: RFC 3339, as the API server returned it."""

    token: str = field(default="", repr=False)
    problem: Problem | None = None
    expiration: str = ""


class FoundCertificate(msgspec.Struct, frozen=True):
    """A certificate of a pod, or why there is none."""

    credential: Credential | None = None
    problem: Problem | None = None


class SetUpInputs(msgspec.Struct, frozen=True):
    """The inputs of set-up beside the volume's source. `refresh_at`: the monotonic moment at which the first token or
    certificate is to be renewed; `device_path`: where its device is mounted, "" = it has none; `capacity_before`: bytes
    that a volume that is to be expanded has."""

    objects: Mapping[ObjectKey, FoundObject] = msgspec.field(default_factory=dict)
    tokens: Mapping[TokenKey, FoundToken] = msgspec.field(default_factory=dict)
    certificates: Mapping[CertificateKey, FoundCertificate] = msgspec.field(default_factory=dict)
    refresh_at: float | None = None
    device_path: str = ""
    capacity_before: int = 0

    @property
    def versions(self) -> dict[str, str]:
        """Return the version of each object by its key in `objects.changed`."""
        return {str(key): found.version for key, found in self.objects.items()}


def make_payload(source: Files, gathered: SetUpInputs) -> Payload:
    """Return every file of the volume; a file of a later part replaces one of an earlier part. Raises ContentError,
    which names everything that is missing."""
    if source.default_mode is None:
        raise ContentError([Problem("no defaultMode used, not even the default value for it")])
    payload: dict[str, PayloadFile] = {}
    problems: list[Problem] = []
    room = MAX_PAYLOAD_BYTES
    for part in source.parts:
        try:
            files = _part(part, source, source.default_mode, gathered)
            _check_owners(files)
            room -= sum(len(file.content) for file in files.values())
            if room < 0:
                raise ContentError([Problem(f"the files of the volume have more than {MAX_PAYLOAD_BYTES} bytes")])
            payload.update(files)
        except _ProblemsError as error:
            problems += error.problems
    if problems:
        raise ContentError(problems)
    return payload


class _ProblemsError(Exception):
    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems = problems


def _part(part: Part, source: Files, mode: int, gathered: SetUpInputs) -> dict[str, PayloadFile]:
    match part:
        case ObjectPart(key):
            return _object(part, mode, source.default_user, gathered.objects.get(key) or FoundObject())
        case DownwardPart(files):
            if failed := [Problem(file.error) for file in files if file.error]:
                raise _ProblemsError(*failed)
            return {
                file.path: PayloadFile(
                    file.content, mode if file.mode is None else file.mode, _owner(file.user, source.default_user)
                )
                for file in files
            }
        case TokenPart(key, path, user):
            found = gathered.tokens.get(key) or FoundToken(problem=Problem("failed to fetch token: not asked for"))
            if found.problem is not None:
                raise _ProblemsError(found.problem)
            return {path: _credential(found.token.encode(), mode, source, user)}
        case TrustBundlePart(key, path):
            anchors = _trust_anchors(part, source, gathered.objects.get(key) or FoundObject())
            return {path: _credential(anchors, mode, source, part.user)}
        case CertificatePart(key):
            certificate = gathered.certificates.get(key) or FoundCertificate(problem=Problem(NOT_ISSUED))
            if certificate.credential is None:
                raise _ProblemsError(certificate.problem or Problem(NOT_ISSUED))
            contents = files_of(part, certificate.credential)
            return {path: _credential(content, mode, source, part.user) for path, content in contents.items()}
        case RefusedPart(reason):
            raise _ProblemsError(Problem(reason))


def _owner(*users: int | None) -> int | None:
    """Return the first user ID that is given; None = ours."""
    return next((user for user in users if user is not None), None)


def _check_owners(files: Payload) -> None:
    for file in files.values():
        if file.owner is not None and not 0 <= file.owner <= MAX_USER_ID:
            raise _ProblemsError(Problem(f"user {file.owner} is not from 0 to {MAX_USER_ID}"))


def _credential(content: bytes, mode: int, source: Files, user: int | None) -> PayloadFile:
    """Return a file that only the pod's user may read, where the pod has one user or group for all containers. `user`:
    its owner, None = the one that the volume names, or the pod's."""
    restricted = source.fs_user is not None or source.fs_group is not None
    return PayloadFile(content, TOKEN_MODE if restricted else mode, _owner(user, source.default_user, source.fs_user))


def _trust_anchors(part: TrustBundlePart, source: Files, found: FoundObject) -> bytes:
    if found.object is None:
        if found.not_found and part.optional:
            return b""
        problem = found.problem or Problem(f'clustertrustbundle "{part.key.name}" not found')
        prefix = "while getting ClusterTrustBundle: " if found.not_found else ""
        raise _ProblemsError(Problem(prefix + problem.text, problem.kind))
    try:
        return trust_anchors(part, found.object, source.pod_uid)
    except TrustBundleError as error:
        raise _ProblemsError(Problem(str(error))) from None


def _object(part: ObjectPart, mode: int, default_user: int | None, found: FoundObject) -> dict[str, PayloadFile]:
    key = part.key
    if found.object is None and not (found.not_found and part.optional):
        raise _ProblemsError(found.problem or Problem(f'{key.kind.lower()} "{key.name}" not found'))
    values = _values(key.kind, found.object or {})
    items = part.items or tuple(Item(name, name) for name in values)
    files = {}
    for item in items:
        value = values.get(item.key)
        if value is None:
            if part.optional:
                continue
            what = "references non-existent secret key"
            if key.kind == "ConfigMap":
                what = "configmap references non-existent config key"
            raise _ProblemsError(Problem(f"{what}: {item.key}"))
        if isinstance(value, Problem):
            raise _ProblemsError(value)
        owner = _owner(item.user, default_user)
        files[item.path] = PayloadFile(value, mode if item.mode is None else item.mode, owner)
    return files


def _values(kind: str, found: Object) -> dict[str, bytes | Problem]:
    """Return key -> content, or a Problem where the API server would have refused the value."""
    values: dict[str, bytes | Problem] = {}
    plain, encoded = ("data", "binaryData") if kind == "ConfigMap" else ("", "data")
    for key, value in _entries(found, plain):
        is_text = isinstance(value, str)
        problem = Problem(f"value of key {key} is not a string")
        values[key] = str(value).encode("utf-8", "replace") if is_text else problem
    for key, value in _entries(found, encoded):
        values.setdefault(key, _decoded(key, value))
    return values


def _entries(found: Object, member: str) -> list[tuple[str, object]]:
    entries = found.get(member)
    return [(str(key), value) for key, value in entries.items()] if isinstance(entries, dict) else []


def _decoded(key: str, value: object) -> bytes | Problem:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else Problem(f"key {key}: not base64")
    except (binascii.Error, ValueError):
        return Problem(f"value of key {key} is not base64")
