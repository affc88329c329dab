"""A listener's address means what it means to a Go program: an unspecified one takes IPv4 and IPv6."""

import errno
import socket

import pytest

from shared.host.listening_address import bind

FAMILIES = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}


def reached(address: str) -> set[str]:
    """The loopback addresses at which a listener on `address` takes a connection."""
    found = set()
    with bind(address, 0) as listener:
        listener.listen()
        for client, family in FAMILIES.items():
            with socket.socket(family, socket.SOCK_STREAM) as connection:
                if connection.connect_ex((client, listener.getsockname()[1])) == 0:
                    found.add(client)
    return found


@pytest.mark.parametrize(
    ("address", "clients"),
    [
        ("0.0.0.0", {"127.0.0.1", "::1"}),
        ("::", {"127.0.0.1", "::1"}),
        ("127.0.0.1", {"127.0.0.1"}),
        ("::1", {"::1"}),
    ],
)
def test_an_unspecified_address_takes_clients_of_both_families(address: str, clients: set[str]) -> None:
    assert reached(address) == clients


@pytest.mark.parametrize("number", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_without_ipv6_the_default_address_takes_ipv4(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutIpv6(socket.socket):
        def __init__(self, family: int = -1, *more: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(number, "no IPv6")
            super().__init__(family, *more)

    monkeypatch.setattr("shared.host.listening_address.socket.socket", WithoutIpv6)
    with bind("0.0.0.0", 0) as listener:
        assert listener.family == socket.AF_INET
    with pytest.raises(OSError, match="no IPv6"):
        bind("::", 0)


def test_a_port_that_one_family_has_is_taken() -> None:
    with bind("127.0.0.1", 0) as other:
        other.listen()
        with pytest.raises(OSError) as error:
            bind("0.0.0.0", other.getsockname()[1])
    assert error.value.errno == errno.EADDRINUSE
