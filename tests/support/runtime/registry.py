"""Debian's docker-registry for a test, on a loopback port: open or for known users, with or without TLS.

    with Registry(tmp_path, users=True) as registry:
        image = registry.push("team/app:1")

Each name that is pushed becomes an image of its own, with an id of its own.
"""

import base64
import io
import json
import os
import ssl
import subprocess
import tarfile
import time
import urllib.error
import urllib.request
from email.message import Message
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shared.model.frozen_copy import replace
from shared.model.objects import Object
from tests.support.agents.free_ports import free_ports
from tests.support.clusters.control_plane_certificates import Authority
from tests.support.waits.deadline import WAIT_SECONDS
from tools.oci_image import BUSYBOX_CONTENT, archive, read_busybox

# bcrypt, which is all that the registry reads, of `<user>-word`.
_HTPASSWD = """\
ann:$2b$05$abcdefghijklmnopqrstuuzNtlLUf80iGocNol3URbmnWGPgz0/2G
bob:$2b$05$bbcdefghijklmnopqrstuuYtphexqifdU/HhbA.1RUoQzRVwN9TSu
"""


def password(user: str) -> str:
    """Return the password of the users `ann` and `bob`, whom a registry with users knows."""
    return f"{user}-word"


def asks_for_credentials(message: str) -> bool:
    """Return whether the message of a failed pull, of containerd or Docker, says that the registry wants others."""
    return any(words in message for words in ("authoriz", "no basic auth credentials"))


class Registry:
    """`users`: only ann and bob may pull and push. `authority`: it speaks TLS with a certificate of this one."""

    def __init__(self, directory: Path, *, users: bool = False, authority: Authority | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory, self._users, self._authority = directory, users, authority
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start the registry, another time if need be, and wait until it answers."""
        config, log = self._directory / "config.json", self._directory / "log"
        config.write_text(json.dumps(self._config()))  # JSON is YAML
        with log.open("ab") as output:
            self._process = subprocess.Popen(["docker-registry", "serve", str(config)], stdout=output, stderr=output)
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"the registry does not answer: {log.read_text()}")
            time.sleep(0.05)

    def stop(self) -> None:
        """End the registry; what was pushed stays."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    def name(self, path: str) -> str:
        """Return the image of this path in the registry."""
        return f"{self.address}/{path}"

    def push(self, path: str, *, padding: int = 0) -> str:
        """Put an image of its own, made from busybox, into the registry; returns its name. `padding`: bytes of a
        random file in its layer."""
        name = self.name(path)
        image = replace(BUSYBOX_CONTENT, name=name, environment=(*BUSYBOX_CONTENT.environment, f"PUSHED_AS={name}"))
        if padding:
            image = replace(image, files={**image.files, "/padding": (os.urandom(padding), 0o644)})
        blobs = {}
        with tarfile.open(fileobj=io.BytesIO(archive(image, *read_busybox()))) as tar:
            for member in tar.getmembers():
                blobs[member.name.removeprefix("blobs/sha256/")] = tar.extractfile(member).read()  # type: ignore[union-attr]
        described = json.loads(blobs["index.json"])["manifests"][0]
        manifest = blobs[described["digest"].removeprefix("sha256:")]
        repository, _, tag = path.rpartition(":")
        for part in (json.loads(manifest)["config"], *json.loads(manifest)["layers"]):
            begun = self._request("POST", f"/v2/{repository}/blobs/uploads/", b"")
            content = blobs[part["digest"].removeprefix("sha256:")]
            self._request("PUT", f"{begun['Location']}&digest={part['digest']}", content)
        self._request("PUT", f"/v2/{repository}/manifests/{tag}", manifest, described["mediaType"])
        return name

    def _request(self, method: str, path: str, content: bytes, kind: str = "application/octet-stream") -> Message:
        """Send a request and return the headers of the answer."""
        url = path if "://" in path else f"{self._scheme}://{self.address}{path}"
        request = urllib.request.Request(url, content, {"Content-Type": kind}, method=method)
        if self._users:
            both = base64.b64encode(f"ann:{password('ann')}".encode()).decode()
            request.add_header("Authorization", f"Basic {both}")
        with urllib.request.urlopen(request, timeout=WAIT_SECONDS, context=self._context) as answer:
            headers: Message = answer.headers
            return headers

    def auths(self, user: str, word: str | None = None, *, place: str = "") -> Object:
        """Return the entries of a docker config with this user, for the whole registry or another place."""
        both = f"{user}:{password(user) if word is None else word}"
        return {place or self.address: {"auth": base64.b64encode(both.encode()).decode()}}

    def _config(self) -> dict[str, Any]:
        http: dict[str, Any] = {"addr": self.address}
        if self._authority is not None:
            certificate, key = self._authority.issue("registry", "registry", serving=["127.0.0.1"])
            http["tls"] = {"certificate": str(certificate), "key": str(key)}
        config: dict[str, Any] = {"version": 0.1, "http": http, "log": {"level": "info"}}
        config["storage"] = {"filesystem": {"rootdirectory": str(self._directory / "data")}}
        if self._users:
            (self._directory / "htpasswd").write_text(_HTPASSWD)
            config["auth"] = {"htpasswd": {"realm": "test", "path": str(self._directory / "htpasswd")}}
        return config

    @property
    def _scheme(self) -> str:
        return "https" if self._authority is not None else "http"

    @property
    def _context(self) -> ssl.SSLContext | None:
        authority = self._authority
        return ssl.create_default_context(cafile=str(authority.certificate_file)) if authority is not None else None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._scheme}://{self.address}/v2/", timeout=1, context=self._context):
                return True
        except urllib.error.HTTPError as error:
            with error:
                return error.code == 401
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False


def pull_secret(name: str, auths: Object, *, legacy: bool = False) -> Object:
    """Return a Secret of namespace `default` with these entries."""
    kind, key, document = "dockerconfigjson", ".dockerconfigjson", json.dumps({"auths": auths})
    if legacy:
        kind, key, document = "dockercfg", ".dockercfg", json.dumps(auths)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "default"},
        "type": f"kubernetes.io/{kind}",
        "data": {key: base64.b64encode(document.encode()).decode()},
    }
