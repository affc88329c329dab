"""The counters of network interfaces in the kernel's text."""

from bus.messages.usage import InterfaceUsage
from services.pleg.core.network_counters import interfaces

HEAD = b"""Inter-| Receive | Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
"""
ETH0 = b"  eth0: 1000 20 3 4 0 0 0 0 5000 60 7 8 0 0 0 0\n"
LO = ETH0.replace(b"  eth0", b"    lo")


def test_an_interface_has_the_counters_of_both_directions() -> None:
    assert interfaces(HEAD + LO + ETH0) == (
        InterfaceUsage(
            name="eth0",
            rx_bytes=1000,
            rx_packets=20,
            rx_errors=3,
            rx_dropped=4,
            tx_bytes=5000,
            tx_packets=60,
            tx_errors=7,
            tx_dropped=8,
        ),
    )


def test_loopback_and_the_ends_of_containers_are_left_out() -> None:
    names = (b"lo", b"veth12ab", b"docker0", b"nerdctl0", b"cni0")
    text = HEAD + b"".join(ETH0.replace(b"eth0", name) for name in names)
    assert [interface.name for interface in interfaces(text)] == ["cni0"]


def test_lines_that_do_not_fit_are_skipped_and_their_number_is_bounded() -> None:
    assert interfaces(b"") == ()
    assert interfaces(HEAD + b"eth0: 1 2 3\nnothing\n" + ETH0.replace(b"1000", b"x")) == ()
    assert len(interfaces(HEAD + ETH0 * 1000)) == 256
