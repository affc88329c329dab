"""The ports on which processes of the machine receive."""

import socket
from pathlib import Path

from shared.host.listening_sockets import listening_ports


def test_a_socket_that_listens_is_found_by_its_port() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening, socket.socket(type=socket.SOCK_DGRAM) as bound:
        listening.bind(("127.0.0.1", 0))
        bound.bind(("127.0.0.1", 0))
        port, other = listening.getsockname()[1], bound.getsockname()[1]
        assert ("TCP", port) not in listening_ports()
        listening.listen()
        assert {("TCP", port), ("UDP", other)} <= listening_ports()


def test_a_machine_without_these_tables_has_none(tmp_path: Path) -> None:
    (tmp_path / "tcp").write_text("header\n broken\n")
    assert listening_ports(tmp_path) == frozenset()
