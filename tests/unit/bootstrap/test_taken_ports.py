"""A port that another process has is named together with that process."""

import os
import socket
from collections.abc import Iterator

import pytest

from services.bootstrap.adapters.taken_ports import find_taken
from shared.config.effective import EffectiveConfig


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def config(**ports: int | str | bool) -> EffectiveConfig:
    settings = {"address": "127.0.0.1", "enable_server": False, "healthz_port": 0, **ports}
    return EffectiveConfig(node_name="n", root_dir="/", run_dir="/", log_dir="/", cert_dir="/", **settings)  # type: ignore[arg-type]


def no_server() -> int | None:
    return None


def test_a_taken_port_names_its_process(taken: int) -> None:
    [line], remarks = find_taken(config(port=taken, enable_server=True), no_server)
    assert line.startswith(f"port: 127.0.0.1:{taken} is in use by ")
    assert f"(process {os.getpid()})" in line
    assert remarks == []


@pytest.mark.long
def test_a_port_that_is_taken_over_ipv6_is_taken_for_the_default_address() -> None:
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        port = listener.getsockname()[1]
        [line], _ = find_taken(config(read_only_port=port, address="0.0.0.0"), no_server)
    assert line.startswith(f"readOnlyPort: 0.0.0.0:{port} is in use by ")


def test_our_own_server_may_have_it(taken: int) -> None:
    assert find_taken(config(read_only_port=taken), os.getpid) == ([], [])


@pytest.mark.long
def test_a_taken_health_port_is_a_remark_only(taken: int) -> None:
    problems, [remark] = find_taken(config(healthz_port=taken), no_server)
    assert problems == []
    assert remark.startswith(f"healthzPort: 127.0.0.1:{taken} is in use")


def test_a_foreign_address_is_refused() -> None:
    [line], _ = find_taken(config(read_only_port=12345, address="192.0.2.1"), no_server)
    assert "Cannot assign requested address" in line


def test_a_port_that_is_off_is_not_looked_at() -> None:
    assert find_taken(config(port=1, address="192.0.2.1"), no_server) == ([], [])


def test_who_the_server_is_is_asked_after_the_port_was_found_taken(taken: int) -> None:
    asked: list[int] = []

    def server() -> int:
        asked.append(os.getpid())
        return os.getpid()

    assert find_taken(config(port=taken, enable_server=True), server) == ([], [])
    assert len(asked) == 1
    address_not_ours = config(port=1, address="192.0.2.1")
    assert find_taken(address_not_ours, server) == ([], []) and len(asked) == 1


@pytest.mark.long
def test_a_server_restarted_between_the_two_questions_is_no_stranger(taken: int) -> None:
    holders = iter((1, os.getpid()))
    assert find_taken(config(port=taken, enable_server=True), lambda: next(holders)) == ([], [])
