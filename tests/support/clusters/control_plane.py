"""A real control plane for tests: etcd, kube-apiserver and kube-controller-manager on loopback, in one directory.

    async with ControlPlane(tmp_path) as cluster:
        cluster.kubectl("get", "nodes")

There is no scheduler: pods are created with `spec.nodeName`. Works with any folder that has the layout envtest uses.
"""

import asyncio
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from shared.kube.client import KubeClient, kube_client
from shared.kube.credentials import Credentials, credentials_path, encode_credentials
from shared.kube.interface import ApiClient, ApiStatusError
from tests.support.agents.free_ports import free_ports
from tests.support.clusters.control_plane_certificates import Authority, write_kubeconfig
from tests.support.clusters.control_plane_programs import FLAGS_OF_1_20, READY_TIMEOUT, Programs
from tests.support.clusters.control_plane_store import Contents, put_back, read_first
from tests.support.installed import ran_versions
from tests.support.installed.chosen_programs import first_line
from tests.support.installed.lacking import lack
from tests.support.waits.deadline import WAIT_SECONDS

_TOOL = Path(__file__).resolve().parents[3] / "tools/control-plane"
_SERVICES = "10.0.0.0/24"
_NAMES = ("127.0.0.1", "::1", "10.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
_AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, Panic]
rules: [{level: Metadata}]
"""


def assets() -> Path:
    """Return the folder with the binaries. Where there is none, the test skips, or fails in CI."""
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        return Path(named)
    found = subprocess.run([_TOOL, "--existing"], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        lack("no control plane on this machine: make assets, or set KUBEBUILDER_ASSETS to a folder as envtest has")
    return Path(found.stdout.strip())


class ControlPlane:
    """One cluster below `directory`. Flags and feature gates that this version does not have are left out.

    `kubelet_ca`: the authority the API server checks kubelets' serving certificates with; without it, it does not.
    `audit`: keep the log that `requests_by_user` counts. `controllers`: as for kube-controller-manager's flag.
    `address`: of this machine, where the API server listens. `place`: another directory for the files of its
    programs, which may then serve one test after the other (`shared_control_plane`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        folder: Path | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        kubelet_ca: Path | None = None,
        audit: bool = False,
        controllers: str = "*",
        address: str = "127.0.0.1",
        place: Path | None = None,
        api_server_flags: Mapping[str, str] | None = None,
        controller_manager_flags: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory  # for kubeconfigs and what else a test has of it
        self._place = place or directory
        self._folder = folder or assets()
        self._address = address
        self._kubelet_ca, self._audit, self._controllers = kubelet_ca, audit, controllers
        self._api_server_flags = dict(api_server_flags or {})
        self._controller_manager_flags = dict(controller_manager_flags or {})
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self._programs = Programs(self._folder, self._place, feature_gates or {})
        self._clients: list[KubeClient] = []
        self.kubectl_program: Path | None = None  # None = the one of the folder
        self.kubectl_server = ""  # a URL in front of the API server
        self._ran: ran_versions.Ran | None = None
        self._audit_from = 0
        self._first: Contents = {}
        self.hurt = False  # whether its API server was stopped or paused

    async def __aenter__(self) -> Self:
        try:
            await self.begin(self.directory)
        except BaseException:
            await self._end()
            raise
        return self

    async def begin(self, directory: Path) -> None:
        """Begin the use by a test, whose kubeconfigs are below `directory`: start the controllers, and before the first
        use etcd and the API server."""
        if not self._first:
            await self._start()
        self.directory, self.kubectl_program, self.kubectl_server = directory, None, ""
        self.kubeconfig = self._kubeconfig("admin", _pair_user(self._admin_pair))
        self.admin: ApiClient = self._client("admin", self._admin_pair)
        self._start_controller_manager()
        await self._until_pods_may_be_made()
        version = ran_versions.extract_version(self._programs.version("kube-apiserver"))
        self._ran = ran_versions.begin_use("API server", version)

    async def end_use(self) -> None:
        """End the use by a test: the controllers and the connections end."""
        if self._ran is not None:
            ran_versions.end_use(self._ran)
            self._ran = None
        for client in self._clients:
            await client.close()
        self._clients.clear()
        await self._programs.kill("kube-controller-manager")

    async def put_back(self) -> None:
        """After `end_use`, let the API server hold what it held as it was new; only resource versions count on."""
        await put_back(self._etcd_url, self._first)
        if self._audit:
            self.forget_requests()

    def kill(self) -> None:
        """Kill all programs that run, from any event loop or none."""
        self._programs.kill_all()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    @property
    def url(self) -> str:
        """Return the URL of the API server."""
        return f"https://{self._address}:{self._port}"

    @property
    def ca_file(self) -> Path:
        """Return the file of the authority of all certificates, client and serving."""
        return self.authority.certificate_file

    @property
    def version(self) -> tuple[int, int]:
        """Return the version of the API server, such as (1, 20)."""
        major, minor = self._programs.version("kube-apiserver").split("v", 1)[1].split(".")[:2]
        return int(major), int(minor)

    def has_gate(self, gate: str) -> bool:
        """Return whether this version's API server lets the feature gate be set."""
        return self._programs.has_gate("kube-apiserver", gate)

    @property
    def port(self) -> int:
        """Return the port of the API server on 127.0.0.1."""
        return self._port

    @property
    def etcd_port(self) -> int:
        """Return the port of etcd on 127.0.0.1, which asks for no credentials."""
        return self._etcd_port

    def client(self, node: str) -> ApiClient:
        """Return a connection as that node."""
        pair = self.authority.issue(f"node-{node}", f"system:node:{node}", "system:nodes")
        return self._client(f"node-{node}", pair)

    def kubeconfig_for_node(self, node: str) -> Path:
        """Write a kubeconfig with a client certificate of that node, which names its files."""
        pair = self.authority.issue(f"node-{node}", f"system:node:{node}", "system:nodes")
        return self._kubeconfig(f"node-{node}", _pair_user(pair))

    def kubeconfig_with_token(self, token: str, name: str = "token") -> Path:
        """Write a kubeconfig with a bearer token."""
        return self._kubeconfig(name, {"token": token})

    def kubectl(
        self, *args: str, stdin: str | None = None, check: bool = True, timeout: float = 2.5 * WAIT_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, with `stdin` for `-f -`. With `check`, a failure is an AssertionError."""
        done = subprocess.run(
            self.kubectl_command(*args),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env=self.kubectl_environment,
        )
        assert done.returncode == 0 or not check, f"kubectl {' '.join(args)}: {done.stderr.strip()}"
        return done

    def kubectl_command(self, *args: str) -> list[str]:
        """Return the command line of kubectl as the administrator, for a test that starts the process itself."""
        program = str(self.kubectl_program or self._folder / "kubectl")
        ran_versions.note_use("kubectl", ran_versions.extract_version(first_line(program, "version", "--client")))
        server = ("--server", self.kubectl_server) if self.kubectl_server else ()
        return [program, "--kubeconfig", str(self.kubeconfig), *server, *args]

    @property
    def kubectl_environment(self) -> dict[str, str]:
        """Return the environment of kubectl: its caches are in the cluster's directory."""
        return {**os.environ, "HOME": str(self.directory)}

    async def start_api_server(self) -> None:
        """Start the API server, a second time on the same port with the same data, and wait until it is ready."""
        certificate, key = self._server_pair
        public, private = self._token_pair
        kubelet_certificate, kubelet_key = self.kubelet_client_pair
        flags = {
            "etcd-servers": self._etcd_url,
            "bind-address": self._address,
            "secure-port": str(self._port),
            "insecure-port": "0",
            "cert-dir": str(self._place),
            "tls-cert-file": str(certificate),
            "tls-private-key-file": str(key),
            "client-ca-file": str(self.ca_file),
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction,ServiceAccount",
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": str(public),
            "service-account-signing-key-file": str(private),
            "service-cluster-ip-range": _SERVICES,
            "kubelet-client-certificate": str(kubelet_certificate),
            "kubelet-client-key": str(kubelet_key),
            "kubelet-preferred-address-types": "InternalIP,Hostname",
            "endpoint-reconciler-type": "none",
            "allow-privileged": "true",
            "enable-bootstrap-token-auth": "true",
            "profiling": "false",
            **(FLAGS_OF_1_20 if self.version == (1, 20) else {}),
        }
        if self._kubelet_ca is not None:
            flags["kubelet-certificate-authority"] = str(self._kubelet_ca)
        if self._audit:
            (self._place / "audit-policy.yaml").write_text(_AUDIT_POLICY)
            flags["audit-policy-file"] = str(self._place / "audit-policy.yaml")
            flags["audit-log-path"] = str(self._audit_log)
        self._programs.start("kube-apiserver", {**flags, **self._api_server_flags})
        context = ssl.create_default_context(cafile=str(self.ca_file))
        context.load_cert_chain(*self._admin_pair)
        await self._programs.until_ok("kube-apiserver", f"{self.url}/readyz", context)

    async def stop_api_server(self) -> None:
        """End the API server at once, as a power cut would; etcd and the controllers stay."""
        self.hurt = True
        await self._programs.kill("kube-apiserver")

    async def lose_everything(self) -> None:
        """Restart with an empty store, as after the loss of etcd's disk. Versions count from one again."""
        await self.stop_api_server()
        await self._programs.kill("etcd")
        shutil.rmtree(self._place / "etcd")
        await self._start_etcd()
        await self.start_api_server()

    def pause(self) -> None:
        """Send SIGSTOP to the API server: connections stay open and get no answers."""
        self.hurt = True
        self._programs.signal("kube-apiserver", signal.SIGSTOP)

    def resume(self) -> None:
        """Let the paused API server continue."""
        self._programs.signal("kube-apiserver", signal.SIGCONT)

    def requests_by_user(self) -> dict[str, Counter[str]]:
        """Return how often each user did what (`patch pods/status`) since `forget_requests`; a watch counts as it
        begins."""
        assert self._audit, "the control plane was made without audit=True"
        counts: dict[str, Counter[str]] = {}
        seen: set[str] = set()
        for line in self._audit_log.read_bytes()[self._audit_from :].splitlines():
            try:
                entry = json.loads(line)
            except ValueError:  # the line that is being written
                continue
            if entry["auditID"] in seen or "objectRef" not in entry:
                continue
            seen.add(entry["auditID"])
            what = entry["objectRef"]
            resource = what["resource"] + (f"/{what['subresource']}" if "subresource" in what else "")
            counts.setdefault(entry["user"].get("username", ""), Counter())[f"{entry['verb']} {resource}"] += 1
        return counts

    def forget_requests(self) -> None:
        """Let `requests_by_user` count from now on."""
        self._audit_from = self._audit_log.stat().st_size

    def log(self, program: str) -> str:
        """Return what etcd, kube-apiserver or kube-controller-manager has written so far."""
        return self._programs.log(program)

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._etcd_port}"

    @property
    def _audit_log(self) -> Path:
        return self._place / "audit.log"

    async def _start(self) -> None:
        self.authority = Authority(self._place / "pki")
        self._server_pair = self.authority.issue("server", "kube-apiserver", serving=(*_NAMES, self._address))
        self.kubelet_client_pair = self.authority.issue("kubelet-client", "kube-apiserver-kubelet", "system:masters")
        self._admin_pair = self.authority.issue("admin", "admin", "system:masters")
        self._token_pair = self.authority.signing_key("service-accounts")
        await self._start_etcd()
        await self.start_api_server()
        self._first = await read_first(self._etcd_url)

    async def _start_etcd(self) -> None:
        client, peer = self._etcd_url, f"http://127.0.0.1:{self._peer_port}"
        flags = {
            "data-dir": str(self._place / "etcd"),
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            "unsafe-no-fsync": "true",
        }
        self._programs.start("etcd", flags)
        await self._programs.until_ok("etcd", f"{client}/health", None)

    def _start_controller_manager(self) -> None:
        flags = {
            "kubeconfig": str(self.kubeconfig),
            "controllers": self._controllers,
            "root-ca-file": str(self.ca_file),
            "service-account-private-key-file": str(self._token_pair[1]),
            "cluster-signing-cert-file": str(self.ca_file),
            "cluster-signing-key-file": str(self.authority.key_file),
            "leader-elect": "false",
            "port": "0",
            "secure-port": "0",
            "profiling": "false",
        }
        self._programs.start("kube-controller-manager", {**flags, **self._controller_manager_flags})

    async def _until_pods_may_be_made(self) -> None:
        """Wait until the namespace default has its service account, because the controllers work from then on."""
        deadline = time.monotonic() + READY_TIMEOUT
        while True:
            self._programs.check_alive("kube-controller-manager", deadline)
            try:
                account = await self.admin.get("/api/v1/namespaces/default/serviceaccounts/default")
            except ApiStatusError as error:
                if not error.not_found:
                    raise
            else:
                if self.version >= (1, 24) or account.get("secrets"):  # older ones refuse pods until it has a token
                    return
            await asyncio.sleep(0.05)

    async def _end(self) -> None:
        await self.end_use()
        await asyncio.to_thread(self.kill)

    def _client(self, name: str, pair: tuple[Path, Path]) -> KubeClient:
        run_dir = self.directory / "clients" / name
        path = credentials_path(run_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        ca_file, certificate, key = (str(shutil.copy(file, path.parent)) for file in (self.ca_file, *pair))
        credentials = Credentials(
            version=1,
            server=self.url,
            ca_file=ca_file,
            client_certificate_file=certificate,
            client_key_file=key,
        )
        path.write_bytes(encode_credentials(credentials))
        client = kube_client(run_dir, qps=-1, burst=0, timeout=WAIT_SECONDS)
        self._clients.append(client)
        return client

    def _kubeconfig(self, name: str, user: dict[str, str]) -> Path:
        return write_kubeconfig(self.directory / f"{name}.kubeconfig", self.url, self.ca_file, user)


def _pair_user(pair: tuple[Path, Path]) -> dict[str, str]:
    return {"client-certificate": str(pair[0]), "client-key": str(pair[1])}
