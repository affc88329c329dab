"""Code is in the room it belongs to: names, first lines, and who may import which package."""

import ast
import re

import pytest

from bus.messages.services import SERVICES
from tests.architecture.checkout import (
    begins_with_a_docstring,
    imports_of,
    nodes_of,
    python_files,
    text_of,
    tracked_files,
)

PRODUCT = ("bus", "services", "shared")

# Third-party package -> the modules (or packages, ending in "/") that may import it.
WHO_MAY_IMPORT = {
    "grpc": ("shared/cri/", "shared/plugin_grpc/", "shared/tracing/otlp.py"),
    "opentelemetry": ("shared/tracing/otlp.py",),
    "cri_api": ("services/dockershim/", "shared/cri/"),
    "aiodocker": ("services/dockershim/adapters/engine.py",),
    "google": (
        "shared/cri/content_pb2.py",
        "shared/cri/content_store.py",
        "shared/cri/newer_fields.py",
        "shared/cri/tasks_pb2.py",
        "shared/plugin_grpc/",
    ),
    "kubernetes": ("services/bootstrap/adapters/",),
    "urllib3": ("services/cli/preflight/api_server.py",),
    "cryptography": (
        "services/bootstrap/adapters/",
        "services/cli/agent/certificates.py",
        "services/volume/adapters/certificate_keys.py",
        "shared/files/sealed_record.py",
    ),
    "aiohappyeyeballs": ("shared/kube/dialing.py",),
    "aiohttp": (
        "services/dockershim/adapters/engine.py",
        "services/server/",
        "services/sources/adapters/",
        "services/cli/pods/local_websocket.py",
        "services/cli/pods/remote_command.py",
        "shared/kube/",
    ),
    "asyncinotify": (
        "services/dockershim/adapters/log_watch.py",
        "services/frame/configuration_in_force.py",
        "services/frame/configuration_wait.py",
        "services/bootstrap/",
        "services/cli/agent/service_logs.py",
        "services/cli/agent/story_follow.py",
        "services/sources/adapters/",
        "services/server/adapters/",
        "services/volume/adapters/plugin_sockets.py",
        "shared/offline/record.py",
    ),
    "supervisor": ("services/bootstrap/adapters/", "services/kubelet/"),
    "uvloop": ("services/frame/event_loop.py",),
    "h2": ("shared/http_get/http2_frames.py", "shared/http_get/http2.py", "shared/kube/http2_session.py"),
    "hpack": (),
    "hyperframe": ("shared/http_get/http2_frames.py", "shared/http_get/http2.py", "shared/kube/http2_session.py"),
    "dbus_fast": ("services/podsync/adapters/cgroups/systemd_units.py", "shared/logind/connection.py"),
    "click": ("services/cli/",),
}
# What a service's package may hold, beside __init__.py, __main__.py, service.py and the programs below.
ROOMS = {"core", "adapters", "controllers", "plugins"}
ENTRY_POINTS = ("services/bootstrap/containerd.py",)  # supervisord's program `containerd`
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "manager", "common", "misc", "base"}


def test_a_third_party_package_is_imported_only_in_its_room(subtests: pytest.Subtests) -> None:
    for package in sorted(WHO_MAY_IMPORT):
        with subtests.test(package):
            rooms = WHO_MAY_IMPORT[package]
            strangers = [
                name
                for name in python_files(*PRODUCT)
                if any(module.split(".")[0] == package for module in imports_of(name)) and not name.startswith(rooms)
            ]
            assert not strangers


def test_a_service_consists_of_its_rooms_and_its_entry_points() -> None:
    own = ("__init__.py", "__main__.py", "service.py")
    parts = {name: name.split("/", 3) for name in python_files("services") if name.split("/")[1] in SERVICES}
    strays = [
        name
        for name, (_, _, first, *below) in parts.items()
        if not (first in ROOMS if below else first in own or name in ENTRY_POINTS)
    ]
    assert len({service for _, service, *_ in parts.values()}) == len(SERVICES)
    assert not strays


@pytest.mark.parametrize("service", ["podsync", "volume", "server"])
def test_the_rooms_of_a_core_import_each_other_as_in_their_table(service: str) -> None:
    """No arrow more, none less; that they form no circle is a contract in pyproject.toml."""
    core = f"services/{service}/core/"
    rows = re.findall(r"^ {4}(\w+) .*?(\w+(?: \w+)*)$", text_of(f"{core}__init__.py"), re.MULTILINE)[1:]
    table = {room: set(imported.split()) - {"nothing"} for room, imported in rows}
    found: dict[str, set[str]] = {}
    for name in python_files("services"):
        if name.startswith(core) and name != f"{core}__init__.py":
            room = name.removeprefix(core).removesuffix(".py").split("/")[0]
            found.setdefault(room, set()).update(_rooms_imported(name, f"services.{service}.core") - {room})
    assert found == table


def _rooms_imported(name: str, package: str) -> set[str]:
    """The first names below `package` that the file imports, from it or from what is in it."""
    found: set[str] = set()
    for node in nodes_of(name):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            found.add(str(node.module).removeprefix(f"{package}.").split(".")[0])
    return found


def test_only_the_executable_forks_before_it_has_threads() -> None:
    """A fork beside gRPC's threads may crash before it executes its program; plain `subprocess` uses vfork."""
    forking = re.compile(r"create_subprocess|\bos\.fork|preexec_fn|forkpty|multiprocessing|ProcessPoolExecutor")
    before_any_thread = {"services/kubelet/command.py", "services/kubelet/supervision.py"}
    found = {name for name in python_files(*PRODUCT) if forking.search(text_of(name))}
    assert found == before_any_thread


def test_no_private_attribute_is_reached_by_its_name_in_a_string_or_by_an_import() -> None:
    """ruff's SLF001 finds the others."""
    by_name = re.compile(r"""\b(?:get|set|has|del)attr\([^()]*?, *f?["']_(?!_)|attrgetter\(["']_(?!_)""")
    private = re.compile(r"^\s*(?:from|import) (?:\w+\.)*_(?!_)\w+", re.MULTILINE)
    assert by_name.search('getattr(connection, "_sslobj", None)') and private.search("import _ssl")
    names = python_files(*PRODUCT, "bench", "tools")
    assert not [name for name in names if by_name.search(text_of(name)) or private.search(text_of(name))]


def test_every_module_begins_with_a_docstring() -> None:
    silent = [name for name in python_files(*PRODUCT, "tests", "tools") if not begins_with_a_docstring(name)]
    assert not silent


def test_a_number_of_examples_has_its_share_in_the_short_lane() -> None:
    written = re.compile(r"max_examples=\d+[,)]")
    assert written.search("@settings(max_examples=60)")
    names = [name for name in python_files("tests") if name.startswith("tests/unit/")]
    assert names and not [name for name in names if written.search(text_of(name))]


def test_no_module_has_an_empty_name() -> None:
    parts = [(name, set(name.removesuffix(".py").replace("_", "/").split("/"))) for name in tracked_files()]
    assert not [name for name, words in parts if words & EMPTY_NAMES]


def test_a_module_has_one_logger_and_calls_it_log() -> None:
    named_after_its_module = re.compile(r"^log = logging\.getLogger\(__name__\)$", re.MULTILINE)
    other = re.compile(
        r"^(?!log = )\w+(?:: [\w.]+)? = logging\.getLogger\(|^log = (?!logging\.getLogger\(__name__\)$)", re.MULTILINE
    )
    names = python_files(*PRODUCT)
    assert sum(bool(named_after_its_module.search(text_of(name))) for name in names) > 50
    assert not [name for name in names if other.search(text_of(name))]
