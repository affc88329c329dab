"""Reads hostile YAML as sources and bootstrap do: manifests, objects, lists of pods, configurations, kubeconfigs."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from services.bootstrap.adapters import kubeconfig
from services.bootstrap.adapters.resolved_credentials import ProblemError
from services.bootstrap.core.kubeconfig import read_current_context
from services.sources.core.applied_data import AppliedData
from services.sources.core.file_source import FileSource, ManifestFile
from services.sources.core.url_source import pods_of
from services.sources.core.yaml_document import UnreadableManifestError
from shared.config.evaluation import check_readable
from shared.config.findings import ConfigurationRefusedError
from shared.model.objects import Object
from shared.podspec.static_pod import InvalidPod, static_pod
from tests.hostile.strain import Strain, measured

LONGEST = 64 << 10  # characters
TEMPLATES = (
    """apiVersion: v1
kind: Pod
metadata: {name: web, namespace: ns, labels: {app: web}}
spec:
  terminationGracePeriodSeconds: 30
  containers:
  - name: main
    image: docker.io/library/busybox:1.36
    ports: [{containerPort: 80, hostPort: 8080}]
    resources: {limits: {cpu: 100m, memory: 64Mi}}
    env: [{name: A, value: b}]
    livenessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 10}
  volumes:
  - name: scratch
    emptyDir: {sizeLimit: 1Gi}
""",
    "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: ns}\ndata: {a: b}\nimmutable: true\n",
    "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n  spec: {containers: [{name: a, image: b}]}\n",
    """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 110
evictionHard: {memory.available: 100Mi}
syncFrequency: 1m
featureGates: {AllAlpha: false}
""",
    """apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: a, user: u}}]
clusters: [{name: a, cluster: {server: "https://127.0.0.1:6443"}}]
users: [{name: u, user: {token: abc}}]
""",
)
SCALARS = (
    "0x" + "f" * 257, "-0x" + "F" * 390, "0b" + "1" * 390, "0o" + "7" * 390, "0" + "7" * 390, "9" * 310, "9" * 399,
    "9" * 5_000, "-" + "9" * 309, "1_" * 190 + "1", "1e308", "1e309", "-1e400", "1e999999999", ".inf", "-.Inf", ".nan",
    "0x", "0b2", "0o9", "08", "+", "-", ".", "..", "1.", ".5", "1.5e+3", "+1", "18446744073709551616",
    "9223372036854775808",
    "190:20:30", "2001-12-14t21:59:43.10-05:00", "~", "null", "y", "no", "on", "!!int 0x1", "!!int x", "!!float 1",
    "!!binary aGk=", "!!timestamp 2001-01-01", "!!set {a, b}", "!!python/object:os.system x", "!<%41> x", "!a!b c",
    "&a x", "*a",
    "*none", "<<", "=", "''", '"\\x00"', '"\\ud800"', '"\\U0001f600"', "|\n   x", ">-\n   x", "[]", "{}", "[[]]",
    "{[]: 1}",
    "? a", "- a", "\x85", "\u2028", "\ufeff", "\U0001f600", "1Gi", "1e3Gi", "1n", "0.1E", "100m", "1h2m3s", "-1",
    "2147483648",
)  # fmt: skip
UNITS = (
    "[", "{", "]", "}", "- ", "? ", ": ", "a: ", "a,", "[],", "a: b, ", "<<: *a, ", "*a, ", "&a ", "&a x\n",
    "!!int ", "'", '"',
    "\\", "|\n", ">\n", "#\n", "%TAG !a! x:\n", "%YAML 1.1\n", "---\n", "...\n", "- *a\n", "- &b [*a, *a]\n", "\t",
    " ", "\n",
    "\r", "\r\n", "\0", "x", "0", "9", "\xff", "- 0x1\n", "@", "`", "a: [&a {b: c}, *a]\n", "{<<: [*a, *a]},", "-\n",
    "a:\n ",
)  # fmt: skip


def hostile_text(draw: random.Random) -> bytes:
    """A template with some changes, or units without end; the same for the same state of `draw`."""
    text = draw.choice(TEMPLATES)
    for _ in range(draw.choice((1, 1, 2, 4))):
        lines = text.splitlines(keepends=True) or ["\n"]
        at = draw.randrange(len(lines))
        match draw.randrange(6):
            case 0 | 1:
                key, colon, _ = lines[at].rpartition(": ")
                lines[at] = f"{key}{colon}{draw.choice(SCALARS)}\n"
            case 2:
                lines[at] = f"{lines[at].rstrip()} {draw.choice(SCALARS)}\n"
            case 3:
                unit = "".join(draw.choices(UNITS, k=draw.choice((1, 1, 2, 3))))
                lines.insert(at, unit * (draw.choice((1, 50, 3_000, LONGEST)) // len(unit)))
            case 4:
                lines.insert(at, "".join(lines[at : at + draw.randint(1, 5)]))
            case _:
                where = draw.randrange(len(lines[at]))
                lines[at] = lines[at][:where] + draw.choice(UNITS) + lines[at][where + 1 :]
        text = "".join(lines)[: 2 * LONGEST]
    content = text.encode(draw.choice(("utf-8",) * 8 + ("utf-16", "utf-8-sig")), "replace")
    if draw.random() < 0.1:
        where = draw.randrange(len(content))
        content = content[:where] + draw.randbytes(draw.randint(1, 40)) + content[where:]
    return content


def _make_pod(document: Any, path: str = "/m/a.yaml") -> Object:
    return static_pod(document, node_name="n", source="file", origin=path)


def _read_all(content: bytes, directory: Path) -> str:
    """Read the text in each way. What is raised beyond the documented errors is a mistake."""
    files = {"/m/a.yaml": ManifestFile(path="/m/a.yaml", content=content)}
    listing = FileSource(_make_pod).look(files, full=True)
    AppliedData().look(files)
    (file := directory / "document").write_bytes(content)
    readers: list[tuple[Callable[[], object], tuple[type[Exception], ...]]] = [
        (lambda: pods_of(content, _make_pod), (InvalidPod, UnreadableManifestError)),
        (lambda: check_readable(str(file)), (ConfigurationRefusedError,)),
        (lambda: read_current_context(kubeconfig._read(str(file)), str(directory)), (ProblemError,)),
    ]
    for reader, expected in readers:
        try:
            reader()
        except expected as error:
            assert "\n" not in str(error).rstrip() or isinstance(error, ConfigurationRefusedError), error
    return "a pod" if listing.pods else "refused"


async def read_hostile_yaml(seconds: float, seed: str, directory: Path) -> Strain:
    """Read for this long, in a thread as sources does."""
    strain, number = Strain(), 0
    async with measured(strain, seconds) as end:
        while asyncio.get_running_loop().time() < end:
            number += 1
            content = hostile_text(random.Random(f"{seed} {number}"))
            try:
                strain.count(await asyncio.to_thread(_read_all, content, directory))
            except Exception as error:
                strain.problems.append(f"number {number}: raised {error!r:.300}")
    return strain
