"""Messages of which bootstrap is the owner."""

from dataclasses import dataclass

from shared.model.config_source import ConfigSource

SUPERVISORD_IS_SILENT = "supervisord does not answer: nothing that ends is started again (restart the agent)"


@dataclass(frozen=True, kw_only=True)
class CertificateState:
    """Stream `certificates`, key `serving`: which serving pair is in force (no key material)."""

    certificate_file: str
    private_key_file: str
    not_after: str  # RFC3339
    self_signed: bool


@dataclass(frozen=True, kw_only=True)
class NodeConfigStatus:
    """Stream `node.config`, key `node`: what `status.config` of our Node shows. None = the local configuration."""

    assigned: ConfigSource | None = None
    active: ConfigSource | None = None
    last_known_good: ConfigSource | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class RenewCredentials:
    """Request to bootstrap: the API server answered 401 to the credentials of this version, and there are no others."""

    version: int


@dataclass(frozen=True, kw_only=True)
class CredentialsRenewal:
    """Answer to RenewCredentials. `due`: the exec plugin that gave them is run again, now or after a pause; False =
    they are of no plugin, or other credentials are in force already."""

    due: bool
