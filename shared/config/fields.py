"""The types of configuration fields and flags, and the names some values are taken from. Data only (config.md 2.2).

The fields themselves are in `field_table`. Knows nothing of files, of the command line, or of what a value means.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr

from shared.model.schema import ListOf, MapOf, Scalar, Schema


class FlagKind(StrEnum):
    """The type of a flag: what its text may be and becomes (config.md 1.3)."""

    BOOL = "bool"
    INT32 = "int32"
    INT = "int"
    FLOAT64 = "float64"
    STRING = "string"
    DURATION = "duration"
    STRINGS = "strings"
    MAP = "mapStringString"
    LABELS = "labels"  # a map where a key alone has the empty value
    THRESHOLDS = "thresholds"  # `signal<value,…`
    PAIR = "pair"  # exactly one `key=value` an occurrence; commas belong to the value
    GATES = "mapStringBool"
    IP = "ip"
    QUANTITY = "quantity"
    LEVEL = "Level"
    VMODULE = "pattern=N,..."
    RESERVED_MEMORY = "reserved-memory"
    TAINTS = "[]v1.Taint"
    MULTIMAP = "colonSeparatedMultimapStringString"
    VERSION = "version"

    @property
    def word(self) -> str:
        """The type as `--help` shows it."""
        kinds = (FlagKind.LABELS, FlagKind.THRESHOLDS, FlagKind.PAIR)
        return FlagKind.MAP.value if self in kinds else ("float" if self is FlagKind.FLOAT64 else self.value)


UNSET = "unset"  # `zero`: an explicit zero is as good as nothing given, and becomes the default
SAME = object()  # `legacy`: as with a file


class Field(Struct, frozen=True):
    """One key of KubeletConfiguration. A default of None = not set; durations and quantities are texts as Go prints
    them (`1m0s`); `legacy` is the default where neither --config nor --config-dir is given."""

    key: str  # dotted
    schema: Schema
    default: Any = None
    legacy: Any = SAME
    zero: str = ""  # UNSET, or "" = an explicit zero is kept
    flag: str = ""  # without dashes, "" = none
    flag_kind: FlagKind | None = None  # where it does not follow from the schema
    deprecated: bool = True  # the flag, not the key
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    acts: bool = True  # something acts on it; otherwise it is parsed, checked, shown, and reported as without effect
    doc: str = ""  # what it is for, in a few words: for --help and the page in docs/

    def __post_init__(self) -> None:
        if self.flag and self.flag_kind is None:
            force_setattr(self, "flag_kind", _flag_kind(self.schema))

    @property
    def flags_only_default(self) -> Any:
        """The default where neither --config nor --config-dir is given."""
        return self.default if self.legacy is SAME else self.legacy


def _flag_kind(schema: Schema) -> FlagKind:
    if isinstance(schema, ListOf):
        return FlagKind.STRINGS
    if isinstance(schema, MapOf):
        return FlagKind.MAP
    kinds = {
        Scalar.BOOLEAN: FlagKind.BOOL,
        Scalar.INT32: FlagKind.INT32,
        Scalar.INT64: FlagKind.INT,
        Scalar.STRING: FlagKind.STRING,
        Scalar.DURATION: FlagKind.DURATION,
        Scalar.DURATION_OR_NANOSECONDS: FlagKind.DURATION,
        Scalar.QUANTITY: FlagKind.QUANTITY,
    }
    return kinds[schema]  # type: ignore[index]


def schema_tree(fields: Iterable[Field]) -> dict[str, Schema]:
    """Return the nested schema of a KubeletConfiguration document by key."""
    tree: dict[str, Any] = {"apiVersion": Scalar.STRING, "kind": Scalar.STRING}
    for field in fields:
        *parents, last = field.key.split(".")
        inner = tree
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[last] = field.schema
    return tree


B, S = Scalar.BOOLEAN, Scalar.STRING

BULKHEAD_CONFIGURATION: dict[str, Schema] = {
    "apiVersion": S,
    "kind": S,
    "embeddedContainerd": {
        "enabled": B, "root": S, "state": S, "bridge": S, "podCIDR": S, "sandboxImage": S, "path": S, "cniBinDir": S,
        "registryConfigPath": S, "defaultRuntime": S,
    },
    "docker": {
        "enabled": B, "endpoint": S, "sandboxImage": S, "cniBinDir": S, "cniConfDir": S,
        "imagePullProgressDeadline": Scalar.DURATION,
    },
    "devicePluginWait": Scalar.DURATION,
    "deviceUnhealthyAction": S,
    "emulatedVersion": S,
    "offlinePods": {"enabled": B, "maxAge": Scalar.DURATION, "maxBytes": Scalar.INT64},
}  # fmt: skip

# Paths given relative to the directory of the configuration file (config.md 2.1).
RELATIVE_PATHS = (
    "staticPodPath", "authentication.x509.clientCAFile", "tlsCertFile", "tlsPrivateKeyFile", "resolvConf",
    "volumePluginDir", "podLogsDir",
)  # fmt: skip

EVICTION_SIGNALS = (
    "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree",
    "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available", "pid.available",
)  # fmt: skip

TLS_CIPHER_SUITES = frozenset(
    (
        "TLS_AES_128_GCM_SHA256",
        "TLS_AES_256_GCM_SHA384",
        "TLS_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
        "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
        "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        "TLS_RSA_WITH_AES_128_CBC_SHA256",
        "TLS_RSA_WITH_AES_128_GCM_SHA256",
        "TLS_RSA_WITH_AES_256_CBC_SHA",
        "TLS_RSA_WITH_AES_256_GCM_SHA384",
        "TLS_RSA_WITH_RC4_128_SHA",
    )
)
