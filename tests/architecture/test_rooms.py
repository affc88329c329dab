"""Each line stands in the room it belongs to: sizes, names, first lines, and who may import which package."""

import re

import pytest

from bus.messages.streams import SERVICES
from tests.architecture.checkout import imports_of, python_files, says_what_it_is_for, text_of, tracked_files
from tools.file_sizes import report

PRODUCT = ("bus", "services", "shared")

# Third-party package -> the modules (or packages, ending in "/") that may import it.
WHO_MAY_IMPORT = {
    "zmq": ("bus/",),
    "grpc": ("shared/cri/",),
    "cri_api": ("shared/cri/",),
    "google": ("shared/cri/",),
    "kubernetes": ("services/bootstrap/adapters/",),
    "cryptography": ("services/bootstrap/adapters/",),
    "aiohttp": ("services/server/", "shared/kube/"),
    "asyncinotify": (
        "services/frame/configuration_wait.py",
        "services/bootstrap/",
        "services/sources/adapters/",
        "services/server/adapters/",
    ),
    "supervisor": ("services/bootstrap/adapters/", "services/kubelet/"),
    "uvloop": ("services/frame/launch.py",),
    "h2": ("shared/http_get/http2.py",),
    "hpack": (),
    "hyperframe": ("shared/http_get/http2.py",),
    "dbus_fast": ("services/podsync/adapters/systemd_units.py",),
    "click": ("services/cli/",),
}
# Inside bus, what decides and what describes touches no socket.
BUS_WITHOUT_SOCKETS = ("bus/replica.py", "bus/ledger.py", "bus/codec.py", "bus/interface.py", "bus/memory.py")
# What a service's package may hold, beside __init__.py, __main__.py, service.py and the programs below.
ROOMS = {"core", "adapters", "controllers"}
ENTRY_POINTS = ("services/bootstrap/containerd.py",)  # supervisord's program `containerd`
TO_BE_MOVED = {
    "services/podsync/news.py",
    "services/podsync/upkeep.py",
    "services/volume/actions.py",
    "services/volume/operations.py",
    "services/volume/subpaths.py",
}
SAYS_NOTHING = {"util", "utils", "helper", "helpers", "manager", "common", "misc", "base"}


@pytest.mark.parametrize("package", sorted(WHO_MAY_IMPORT))
def test_a_third_party_package_is_imported_only_in_its_room(package: str) -> None:
    rooms = WHO_MAY_IMPORT[package]
    strangers = [
        name
        for name in python_files(*PRODUCT)
        if any(module.split(".")[0] == package for module in imports_of(name)) and not name.startswith(rooms)
    ]
    assert not strangers


def test_the_deciding_half_of_the_bus_touches_no_socket() -> None:
    names = [name for name in python_files("bus") if name in BUS_WITHOUT_SOCKETS or name.startswith("bus/messages/")]
    assert {"bus/replica.py", "bus/ledger.py"} <= set(names)
    assert not [name for name in names if {"zmq", "zmq.asyncio"} & imports_of(name)]


def test_a_core_imports_no_other_room() -> None:
    crossings = [
        (name, module)
        for name in python_files("services")
        if "/core/" in name
        for module in imports_of(name)
        if module.startswith("services.") and ".core" not in module
    ]
    assert not crossings


def test_only_entry_points_and_service_lie_beside_the_rooms_of_a_service() -> None:
    beside = {
        name for name in python_files("services") if (parts := name.split("/"))[1] in SERVICES and parts[2] not in ROOMS
    }
    usual = {f"services/{name}/{file}" for name in SERVICES for file in ("__init__.py", "__main__.py", "service.py")}
    assert beside - usual == {*ENTRY_POINTS, *TO_BE_MOVED}


def test_only_the_service_and_entry_points_import_controllers() -> None:
    importers = {
        name
        for name in python_files(*PRODUCT)
        if "/controllers/" not in name and any(".controllers" in module for module in imports_of(name))
    }
    entries = {f"services/{service}/{file}" for service in SERVICES for file in ("service.py", "__main__.py")}
    assert importers and importers <= entries | set(ENTRY_POINTS)


@pytest.mark.parametrize("module", ["time", "random", "os", "socket", "subprocess", "asyncio", "logging", "pathlib"])
def test_no_core_imports_the_world(module: str) -> None:
    pure = [
        name
        for name in python_files(*PRODUCT)
        if "/core/" in name or name.startswith(("shared/model/", "shared/podspec/", "bus/messages/"))
    ]
    assert pure
    assert not [name for name in pure if module in {imported.split(".")[0] for imported in imports_of(name)}]


def test_only_the_executable_forks_before_it_has_threads() -> None:
    """A fork beside gRPC's threads may crash before it executes its program; plain `subprocess` uses vfork."""
    forking = re.compile(r"create_subprocess|\bos\.fork|preexec_fn|forkpty|multiprocessing|ProcessPoolExecutor")
    before_any_thread = {"services/kubelet/command.py", "services/kubelet/supervision.py"}
    found = {name for name in python_files(*PRODUCT) if forking.search(text_of(name))}
    assert found == before_any_thread


def test_every_module_begins_by_saying_what_it_is_for() -> None:
    silent = [name for name in python_files(*PRODUCT, "tests", "tools") if not says_what_it_is_for(name)]
    assert not silent


def test_a_number_of_examples_has_its_share_in_the_short_lane() -> None:
    written = re.compile(r"max_examples=\d+[,)]")
    assert written.search("@settings(max_examples=60)")
    names = [name for name in python_files("tests") if name.startswith("tests/unit/")]
    assert names and not [name for name in names if written.search(text_of(name))]


def test_no_module_has_a_name_that_says_nothing() -> None:
    parts = [(name, set(name.removesuffix(".py").replace("_", "/").split("/"))) for name in tracked_files()]
    assert not [name for name, words in parts if words & SAYS_NOTHING]


def test_a_file_over_400_lines_needs_a_reason() -> None:
    assert report({"long.py": 401}, {}) == (
        ["  401 long.py: over 400 lines without a reason in [tool.bulkhead.large-files]"],
        False,
    )
    assert report({"long.py": 401}, {"long.py": "one table"}) == (["  401 long.py: one table"], True)
    assert report({"middling.py": 251, "small.py": 250}, {}) == (["  251 middling.py"], True)


def test_a_reason_for_a_file_that_is_short_again_is_refused() -> None:
    assert report({"short.py": 20}, {"short.py": "one table"})[1] is False
