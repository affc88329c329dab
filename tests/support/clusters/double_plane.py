"""The API server's double in the place of a control plane, for a test that needs no more than objects and watches: in a
machine of tests/machine, where the real one does not become ready."""

from pathlib import Path
from types import TracebackType
from typing import Self

from shared.kube.client import kube_client
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from shared.kube.interface import ApiClient
from tests.fakes.api_http import HttpApiServer
from tests.fakes.api_server import ADMIN
from tests.support.clusters.control_plane_certificates import Authority
from tests.support.waits.deadline import WAIT_SECONDS


class DoublePlane:
    """Has what Cluster uses of a ControlPlane. Its users are the names that are their tokens."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._api = directory, HttpApiServer()
        self.ca_file = Authority(directory / "pki").certificate_file  # it issues nothing else

    async def __aenter__(self) -> Self:
        self._api.__enter__()
        self.admin: ApiClient = self._client(ADMIN)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.admin.close()
        self._api.__exit__(kind, error, trace)

    def kubeconfig_for_node(self, node: str) -> Path:
        """Write a kubeconfig of that node."""
        path = self._directory / f"node-{node}.kubeconfig"
        self._api.write_kubeconfig(path, node)
        return path

    def _client(self, user: str) -> ApiClient:
        path = credentials_path(self._directory)
        path.parent.mkdir()
        token = path.with_name("token")
        token.write_text(user)
        path.write_bytes(encode_credentials(Credentials(version=1, server=self._api.url, token_file=str(token))))
        return kube_client(self._directory, qps=-1, burst=0, timeout=WAIT_SECONDS)
