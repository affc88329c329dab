"""The TLS side of the main listener: builds contexts from files, a new one when a file changes.

The listener keeps one context for ever; each connection begins with the newest good one, so a bad new pair never
replaces a good old one, and the listener is never reopened. A session is resumed only within the context that it began
with, hence with the same client CA. Without a pair handshakes fail with an alert until there is one.
"""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress

from services.server.adapters.accepting import CLIENT_ADDRESS
from services.server.adapters.client_certificates import ClientCertificates, ClientConnection, ClientContext
from services.server.adapters.directory_watch import DirectoryWatch
from services.server.adapters.tls_files import (
    BadFileError,
    Pair,
    PairLocation,
    as_file,
    directories_of,
    line_of,
    places_of,
    read_authority,
    read_pair,
)
from services.server.adapters.tls_offer import TlsSettings
from services.server.core.listening.client_address import shown_address
from services.server.core.listening.log_interval import LogInterval
from services.server.core.listening.tls_settings import expiry_of, first_certificate
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError

log = logging.getLogger(__name__)

_MIN_SECURITY_LEVEL = 1  # of OpenSSL: no certificates with SHA-1 signatures or RSA keys below 1024 bits
_RECHECK_SECONDS = 60.0  # between two looks at the files without an event; as the kubelet
_HALF_DONE_SECONDS = 1.0  # that the replacement of two files may take before a mismatch is logged
_NO_PAIR = "no serving certificate available: handshakes fail until there is one"


class _ServerConnection(ClientConnection):
    """The server's end of one TLS connection that sends OpenSSL's alert. asyncio and uvloop close a connection whose
    handshake failed without sending the alert: so the failure is first shown to them as an unfinished handshake, upon
    which they send what there is."""

    report_untrusted: Callable[[str, str], None] = staticmethod(lambda _address, _reason: None)
    _address = ""
    # The arguments of the handshake's error. The error itself refers to this object by its traceback, so that both
    # would stay in memory until the garbage collector looks at them.
    _failed: tuple[object, ...] | None = None

    def open(self, report_untrusted: Callable[[str, str], None]) -> None:
        """Note the time and the client, whose untrusted certificate is reported by its address and the reason."""
        self.opened, self._address = time.monotonic(), CLIENT_ADDRESS.get()
        self.report_untrusted = report_untrusted

    def do_handshake(self) -> None:
        """Do the handshake as ssl does, but raise its error only at the second call, in case the client continues."""
        if self._failed is not None:
            raise ssl.SSLError(*self._failed)
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            self._failed = error.args
            if isinstance(error, ssl.SSLCertVerificationError):
                self.report_untrusted(self._address, error.verify_message)
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "an alert is to be sent") from None


class _ListenerContext(ssl.SSLContext):
    """The context that the listener keeps."""

    begin: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], ssl.SSLObject]

    def wrap_bio(  # type: ignore[override]
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, server_side: bool = True, **_: object
    ) -> ssl.SSLObject:
        """Begin a connection with the newest context."""
        assert server_side
        return self.begin(incoming, outgoing)


class ServingTls:
    """Has the context of the listener, the verification of client certificates (`clients`), and the files of both.

    The constructor raises OperatorError when the configured files or settings cannot be used.
    """

    def __init__(
        self,
        config: EffectiveConfig,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._config, self._wall, self._log = config, wall, LogInterval()
        self.clients = ClientCertificates()
        self.on_new_client_ca: Callable[[], None] = lambda: None
        self._places = places_of(config)
        self._pair: Pair | None = None
        self._ends: float | None = None  # the wall-clock time in seconds at which the certificate expires
        self._inner: ssl.SSLContext | None = None
        self._logged: tuple[str, ...] = ()  # the problems that were logged and still exist
        try:
            self._terms = TlsSettings(config)
        except ValueError as error:
            where = "tlsMinVersion, tlsCipherSuites, tlsCurvePreferences"
            raise OperatorError(str(error), where=where, remedy="change it or leave it out") from error
        for line in self._terms.remarks:
            log.info("%s", line)
        if problems := self.reload(first=True):
            self._refuse_start(problems)
        if self._pair is None:
            log.warning("%s (%s)", _NO_PAIR, self._where_expected())
        self._refusing = self._build(None)
        if config.client_ca_file and self._refusing.security_level < _MIN_SECURITY_LEVEL:
            raise OperatorError(
                "client certificates cannot be verified beside TLS 1.0 and 1.1, for which OpenSSL accepts SHA-1",
                where="tlsMinVersion, authentication.x509.clientCAFile",
                remedy="set tlsMinVersion to VersionTLS12, or remove clientCAFile",
            )
        self._refusing.sni_callback = _refuse_handshake
        self.context = _ListenerContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.begin = self._begin

    def reload(self, *, first: bool = False) -> tuple[str, ...]:
        """Read the files again. Return a line for each one that cannot be used; its last good content stays in use."""
        return self._take_up(*self._read(first))

    async def follow_files(self, watch: DirectoryWatch) -> None:
        """Reload at every change of the files, until cancelled."""
        changed = asyncio.Event()
        paths = (*(p for place in self._places for p in (place.certificate_file, place.key_file)),)
        paths += (self._config.client_ca_file,) if self._config.client_ca_file else ()
        while True:
            changed.clear()
            directories = await asyncio.to_thread(directories_of, paths)
            with watch.waking(changed, *directories) as all_watched:
                # A directory that was made before its parent was watched has caused no event.
                if await asyncio.to_thread(directories_of, paths) != directories:
                    continue
                problems = self._take_up(*await asyncio.to_thread(self._read, False))
                if not problems:
                    self._log_problems(problems)
                fresh = problems != self._logged
                try:
                    async with asyncio.timeout(_HALF_DONE_SECONDS if fresh or not all_watched else _RECHECK_SECONDS):
                        await changed.wait()
                except TimeoutError:
                    self._log_problems(problems)

    def _log_problems(self, problems: tuple[str, ...]) -> None:
        for line in problems:
            if line not in self._logged:
                log.error("not taken up: %s", line)
        if self._logged and not problems:
            log.info("the TLS files are good again")
        self._logged = problems

    def _refuse_start(self, problems: tuple[str, ...]) -> None:
        """Raise for what the kubelet refuses to start with. Where the API server issues the pair, server waits for it
        instead."""
        if self._config.client_ca_file and not self.clients.authority:
            found = [problem for problem in problems if problem.startswith(self._config.client_ca_file)]
            line = f"unable to load client CA file {found[0] if found else problems[-1]}"
            raise OperatorError(line, where="authentication.x509.clientCAFile")
        if self._config.server_tls_bootstrap:
            self._log_problems(problems)
            return
        pair = f"{self._config.tls_cert_file}, {self._config.tls_private_key_file}"
        raise OperatorError(
            f"cannot use the serving pair {pair}: {problems[0]}", where="tlsCertFile, tlsPrivateKeyFile"
        )

    def _read(self, first: bool) -> tuple[Pair | None, bytes, tuple[str, ...]]:
        """Return the pair that counts, the client CA, and what is wrong with the files."""
        problems = []
        pair, authority = None, b""
        for place in self._followed(first):
            try:
                pair = read_pair(place)
            except BadFileError as error:
                problems.append(str(error))
            if pair is not None:
                break
        if pair is None and not problems and self._pair is None and not self._config.server_tls_bootstrap:
            problems += [f"{p.certificate_file}: No such file or directory" for p in self._places[:1]]
        if self._config.client_ca_file:
            try:
                authority = read_authority(self._config.client_ca_file)
            except BadFileError as error:
                problems.append(str(error))
        return pair, authority, tuple(problems)

    def _followed(self, first: bool) -> tuple[PairLocation, ...]:
        """Return the places to watch. Once the API server has issued a pair, the seeds no longer count."""
        reloads = first or self._gate("ReloadKubeletServerCertificateFile")
        only_issued = self._pair is not None and self._pair.issued
        return tuple(place for place in self._places if place.issued or (reloads and not only_issued))

    def _take_up(self, pair: Pair | None, authority: bytes, problems: tuple[str, ...]) -> tuple[str, ...]:
        found = list(problems)
        new_authority = bool(authority) and authority != self.clients.authority
        named = any(problem.startswith(self._config.client_ca_file) for problem in problems)
        if self._config.client_ca_file and not authority and not named:
            found.append(f"{self._config.client_ca_file} is empty (put the CA's certificate there)")
        if new_authority:
            known = bool(self.clients.authority)
            try:
                self.clients.trust(authority)
            except ssl.SSLError as error:
                why = line_of(error)
                found.append(f"{self._config.client_ca_file}: {why} (put the CA's PEM certificate there)")
                new_authority = False
            else:
                if known:
                    log.info("client CA changed: %s is in force for every connection", self._config.client_ca_file)
                self.on_new_client_ca()
        if pair is not None and pair != self._pair:
            try:
                self._inner = self._build(pair)
                self._put_in_force(pair)
                return tuple(found)
            except ssl.SSLError as error:
                found.append(f"{pair.certificate_file}, {pair.key_file}: {line_of(error)} (replace them)")
        if new_authority and self._pair is not None:
            try:
                self._inner = self._build(self._pair)
            except ssl.SSLError as error:
                found.append(f"{self._config.client_ca_file}: {line_of(error)} (replace it)")
        return tuple(found)

    def _put_in_force(self, pair: Pair) -> None:
        if self._pair is not None:
            log.info("serving pair changed: new connections get the one in %s", pair.certificate_file)
        self._pair, self._ends = pair, None
        with suppress(ValueError):
            text = first_certificate(pair.certificate).decode("ascii")
            self._ends = expiry_of(ssl.PEM_cert_to_DER_cert(text))
        if self._ends is not None and self._ends <= self._wall():
            ended = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._ends))
            log.warning("%s has expired on %s UTC (renew it)", pair.certificate_file, ended)

    def _build(self, pair: Pair | None) -> ClientContext:
        context = ClientContext(ssl.PROTOCOL_TLS_SERVER)
        context.sslobject_class = _ServerConnection
        self._terms.apply(context)
        if pair is not None:
            with as_file(pair.certificate) as certificate, as_file(pair.key) as key:
                # The password keeps OpenSSL from asking a terminal for one.
                context.load_cert_chain(certificate, key, password="")
        if self.clients.authority:
            self.clients.request_certificates(context)
        return context

    def _gate(self, name: str) -> bool:
        return self._config.feature_gates.get(name, True)

    def _where_expected(self) -> str:
        if not self._places:
            return "set both tlsCertFile and tlsPrivateKeyFile"
        return f"expected in {self._places[0].certificate_file}"

    def _begin(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        # An issued pair that has expired counts as none, as in the kubelet; an expired pair from the operator stays in
        # use.
        ended = self._config.server_tls_bootstrap and self._ends is not None and self._ends <= self._wall()
        context = self._refusing if self._inner is None or ended else self._inner
        connection = context.wrap_bio(incoming, outgoing, server_side=True)
        assert isinstance(connection, _ServerConnection)
        connection.open(self._report_untrusted)
        return connection

    def _report_untrusted(self, address: str, reason: str) -> None:
        if count := self._log.count("untrusted", time.monotonic()):
            line = "refused a client certificate of %s in the TLS handshake: %s (%d since the last line)"
            log.info(line, shown_address(address), reason, count)


def _refuse_handshake(_connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, _context: ssl.SSLContext) -> int:
    # OpenSSL calls this for every handshake, with or without a server name from the client.
    log.debug("TLS handshake refused: %s", _NO_PAIR)
    return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
