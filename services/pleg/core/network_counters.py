"""Parses the counters of /proc/<pid>/net/dev (node.md 7.4). Pure; a line with another form is skipped."""

from bus.messages.usage import InterfaceUsage

# Beginnings of names: loopback, and the node's ends of the interfaces of pods and containers.
_LEFT_OUT = (b"lo", b"veth", b"docker", b"nerdctl")
MAX_INTERFACES = 256


def interfaces(text: bytes) -> tuple[InterfaceUsage, ...]:
    """Return the interfaces in the kernel's order."""
    usages = []
    for line in text.splitlines()[2:]:
        name, _, rest = line.strip().partition(b":")
        fields = rest.split()
        if name.startswith(_LEFT_OUT) or len(fields) < 16 or not all(field.isdigit() for field in fields[:12]):
            continue
        received, sent = [int(field) for field in fields[:4]], [int(field) for field in fields[8:12]]
        usages.append(
            InterfaceUsage(
                name=name.decode(errors="replace"),
                rx_bytes=received[0],
                rx_packets=received[1],
                rx_errors=received[2],
                rx_dropped=received[3],
                tx_bytes=sent[0],
                tx_packets=sent[1],
                tx_errors=sent[2],
                tx_dropped=sent[3],
            )
        )
        if len(usages) == MAX_INTERFACES:
            break
    return tuple(usages)
