"""How much an idle node asks of the API server: requests per minute with running pods, counted by the server's audit.

`python -m tests.bench.idle_traffic [--pods 30] [--seconds 300] [--settle 90]`
"""

import argparse
import asyncio
import tempfile
from collections import Counter
from pathlib import Path

from tests.agent import NODE
from tests.cluster import Cluster

USER = f"system:node:{NODE}"
LEASE = "leases"


async def measure(pods: int, seconds: float, settle: float) -> Counter[str]:
    """What the node's own user asked for within `seconds`, after `pods` pods have run for `settle` seconds."""
    with tempfile.TemporaryDirectory(prefix="bench") as directory:
        async with Cluster(Path(directory), plane={"audit": True}) as cluster:
            names = [f"idle-{number}" for number in range(pods)]
            for name in names:
                await cluster.create(cluster.pod(name))
            await cluster.wait_ready(*names, seconds=300)
            await asyncio.sleep(settle)
            cluster.plane.forget_requests()
            await asyncio.sleep(seconds)
            return cluster.plane.requests_by_user().get(USER, Counter())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Requests of an idle node, per minute.")
    parser.add_argument("--pods", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--settle", type=float, default=90.0)
    given = parser.parse_args()
    counted = asyncio.run(measure(given.pods, given.seconds, given.settle))
    minutes = given.seconds / 60
    for what, count in counted.most_common():
        print(f"{count / minutes:8.2f} per minute  {what}")
    others = sum(count for what, count in counted.items() if LEASE not in what)
    print(
        f"idle traffic with {given.pods} pods: {others / minutes:.2f} requests per minute beside the lease (goal: 10)"
    )


if __name__ == "__main__":
    main()
