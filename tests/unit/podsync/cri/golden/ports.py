"""pods.md 6.1: which ports are mapped, and how they are noted on their container."""

from tests.unit.podsync.cri.golden.case import CONTAINER, NOTES, Case, another


def ports(name: str, given: list[dict[str, object]], mapped: list[dict[str, object]] | None, note: str) -> Case:
    """Ports of the container: as mapped, and as its annotation."""
    return Case(
        name=name,
        container={"ports": given},
        sandbox={"port_mappings": mapped} if mapped is not None else {},
        message={f"{NOTES}.container.ports": note},
    )


CASES = (
    ports(
        "a container port alone is mapped too",
        [{"containerPort": 80, "protocol": "TCP"}],
        [{"container_port": 80}],
        '[{"containerPort":80,"protocol":"TCP"}]',
    ),
    ports(
        "UDP and SCTP",
        [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 99, "protocol": "SCTP"}],
        [{"protocol": "UDP", "container_port": 53}, {"protocol": "SCTP", "container_port": 99}],
        '[{"containerPort":53,"protocol":"UDP"},{"containerPort":99,"protocol":"SCTP"}]',
    ),
    ports(
        "an unknown protocol is TCP",
        [{"containerPort": 80, "protocol": "QUIC"}],
        [{"container_port": 80}],
        '[{"containerPort":80,"protocol":"QUIC"}]',
    ),
    ports(
        "a port of the host, at one address",
        [{"name": "http", "containerPort": 80, "hostPort": 8080, "hostIP": "192.0.2.7", "protocol": "TCP"}],
        [{"container_port": 80, "host_port": 8080, "host_ip": "192.0.2.7"}],
        '[{"name":"http","hostPort":8080,"containerPort":80,"protocol":"TCP","hostIP":"192.0.2.7"}]',
    ),
    ports(
        "of two ports of one name the first counts",
        [{"name": "a", "containerPort": 80}, {"name": "a", "containerPort": 81}],
        [{"container_port": 80}],
        '[{"name":"a","containerPort":80},{"name":"a","containerPort":81}]',
    ),
    ports(
        "of two nameless ports that are the same one counts",
        [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}],
        [{"container_port": 80}],
        '[{"containerPort":80,"protocol":"TCP"},{"containerPort":80,"protocol":"TCP"}]',
    ),
    ports(
        "nameless ports that differ in address or protocol are all mapped",
        [
            {"containerPort": 80, "protocol": "TCP"},
            {"containerPort": 80, "protocol": "UDP"},
            {"containerPort": 80, "protocol": "TCP", "hostPort": 80, "hostIP": "::1"},
            {"containerPort": 80, "protocol": "TCP", "hostPort": 80, "hostIP": "127.0.0.1"},
        ],
        [
            {"container_port": 80},
            {"container_port": 80, "protocol": "UDP"},
            {"container_port": 80, "host_port": 80, "host_ip": "::1"},
            {"container_port": 80, "host_port": 80, "host_ip": "127.0.0.1"},
        ],
        '[{"containerPort":80,"protocol":"TCP"},{"containerPort":80,"protocol":"UDP"},'
        '{"hostPort":80,"containerPort":80,"protocol":"TCP","hostIP":"::1"},'
        '{"hostPort":80,"containerPort":80,"protocol":"TCP","hostIP":"127.0.0.1"}]',
    ),
    Case(
        name="ports of init containers and sidecars are not mapped",
        spec={
            "initContainers": [
                another("setup", ports=[{"containerPort": 1}]),
                another("side", restartPolicy="Always", ports=[{"containerPort": 2, "hostPort": 2}]),
            ]
        },
    ),
    Case(
        name="two containers may use the same port name",
        spec={
            "containers": [
                {**CONTAINER, "ports": [{"name": "m", "containerPort": 1}]},
                another("d", ports=[{"name": "m", "containerPort": 2}]),
            ]
        },
        sandbox={"port_mappings": [{"container_port": 1}, {"container_port": 2}]},
        message={f"{NOTES}.container.ports": '[{"name":"m","containerPort":1}]'},
    ),
)
