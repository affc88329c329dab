"""Messages of which bootstrap is the owner."""

from msgspec import Struct

from shared.model.config_source import ConfigSource

SUPERVISORD_IS_SILENT = "supervisord does not answer: nothing that ends is started again (restart the agent)"


class CertificateState(Struct, frozen=True, kw_only=True):
    """Stream `certificates`, key `serving`: which serving pair is in force (no key material)."""

    certificate_file: str  # absolute path
    private_key_file: str  # absolute path; the key itself is never sent
    not_after: str  # RFC 3339, end of validity
    self_signed: bool  # made by bootstrap itself


class NodeConfigStatus(Struct, frozen=True, kw_only=True):
    """Stream `node.config`, key `node`: what `status.config` of our Node shows. None = the local configuration."""

    assigned: ConfigSource | None = None  # the ConfigMap that the Node names, at the version that was read last
    active: ConfigSource | None = None  # the source of the configuration in force
    last_known_good: ConfigSource | None = None  # the last source that was in force for 10 minutes
    error: str = ""  # why `assigned` is not `active`, or not the newest version; "" = no error


class RenewCredentials(Struct, frozen=True, kw_only=True):
    """Request to bootstrap: the API server answered 401 to the credentials of this version, and there are no others."""

    version: int  # of the refused credentials


class CredentialsRenewal(Struct, frozen=True, kw_only=True):
    """Answer to RenewCredentials."""

    # the exec plugin that gave them is run again, now or after a pause; False = they are of no plugin, or other
    # credentials are in force already
    due: bool
