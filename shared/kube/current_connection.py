"""The connections for the credentials as they are now: opened again when bootstrap has written others."""

from pathlib import Path

from shared.errors import OperatorError
from shared.kube.connection import Connection, open_connection
from shared.kube.credentials import FileMark, credentials_path, load_credentials, mark_of
from shared.kube.interface import ApiUnreachableError


class CurrentConnection:
    """The connections that clients of one process share. Belongs to one event loop; `close` it."""

    def __init__(self, run_dir: Path, user_agent: str) -> None:
        self._run_dir, self._path, self._user_agent = run_dir, credentials_path(run_dir), user_agent
        self._connection: Connection | None = None
        self._mark: FileMark | None = None  # of the credentials.json that `_connection` was opened with
        self._closed = False
        self._shared_watches = True  # on the connections before, as long as new ones were not dialed

    @property
    def shares_watches(self) -> bool:
        """Whether the API server negotiated HTTP/2 at the last dial; True before the first one."""
        if self._connection is not None:
            http2 = self._connection.http2
            if http2 is None or http2.is_agreed is not None:
                self._shared_watches = http2 is not None and http2.is_agreed is True
        return self._shared_watches

    async def get(self) -> Connection:
        """Return the pool to send with now. Raises ApiUnreachableError without usable credentials."""
        if self._closed:
            raise ApiUnreachableError("the client is closed")
        mark = mark_of(self._path)
        if self._connection is not None and (mark == self._mark or mark is None):
            return self._connection  # credentials that vanished were good a moment ago
        return await self._renew(mark)

    def has_others(self, refused: Connection) -> bool:
        """Return, after a 401, whether there are other credentials than the refused ones."""
        try:
            if load_credentials(self._run_dir) == refused.credentials:
                return False
        except (OSError, OperatorError):
            return False
        if self._connection is refused:
            self._mark = None
        return True

    async def drop(self) -> None:
        """Open new connections for new requests; idle ones close now, the others when their requests end."""
        connection, self._connection, self._mark = self._connection, None, None
        if connection is not None:
            await connection.retire()

    async def close(self) -> None:
        """Close all connections, also those of requests in progress."""
        connection, self._connection, self._closed = self._connection, None, True
        if connection is not None:
            await connection.close()

    async def _renew(self, mark: FileMark | None) -> Connection:
        try:
            opened = open_connection(load_credentials(self._run_dir), self._user_agent)
        except FileNotFoundError:
            raise ApiUnreachableError(f"{self._path} is not there yet (bootstrap writes it; see its log)") from None
        except OperatorError as error:
            raise ApiUnreachableError(str(error)) from None
        except ApiUnreachableError:
            if mark_of(self._path) != mark:  # replaced between its reading and that of the files it names
                return await self.get()
            raise
        old, self._connection, self._mark = self._connection, opened, mark
        if old is not None:
            await old.retire()
        return opened
