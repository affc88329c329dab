"""Decides which user a request comes from: by a client certificate, a token, or anonymous (server.md 2). Must not know
TLS or HTTP libraries."""

from collections.abc import Iterable
from dataclasses import dataclass, field

UNAUTHORIZED = "Unauthorized"  # the body of every 401

_UID_ATTRIBUTE = "1.3.6.1.4.1.57683.2"
_CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"

Subject = Iterable[Iterable[tuple[str, str]]]  # as ssl's getpeercert()["subject"]: RDNs of (attribute, value)


@dataclass(frozen=True)
class User:
    """An authenticated user, anonymous included."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: dict[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


def certificate_user(subject: Subject, sha256: str) -> User | None:
    """Return the user that a verified client certificate names: the CN, with O as groups. `sha256`: the certificate's
    digest in hex. A certificate without a CN names no user, whatever its groups: None."""
    attributes = [pair for rdn in subject for pair in rdn]
    names = [value for key, value in attributes if key == "commonName"]
    if not names or not names[-1]:
        return None
    groups = [value for key, value in attributes if key == "organizationName"]
    uids = [value for key, value in attributes if key == _UID_ATTRIBUTE]
    if "system:authenticated" not in groups:
        groups.append("system:authenticated")
    return User(
        names[-1],
        tuple(groups),
        uids[-1] if uids else "",
        {_CREDENTIAL_ID: (f"X509SHA256={sha256}",)},
    )


def authenticate(found: User | None, *, failed: bool, anonymous: bool) -> User | None:
    """Return the user, or None for 401. `failed`: a credential was offered that could not be verified; anonymous access
    is then refused even where it is allowed (server.md 2.5)."""
    if found is not None:
        return found
    return ANONYMOUS if anonymous and not failed else None
