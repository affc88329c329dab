"""What the agents of a large cluster ask of the API server, second by second: after an outage, and in a restart of all.

`python -m bench.many_agents [AGENTS]` prints both as curves, in some seconds. Time is virtual: the decisions are those
of the cores of sources and status (`Reflector`, `Outage`, `KeyQueue`, `TokenBucket`), without processes and a network;
every request is refused, or answered, at once. An agent has as many watches as one whose pods name 50 objects.
"""

import argparse
import random
from collections import Counter
from dataclasses import dataclass, field

from services.sources.core.reflector import (
    MAX_PROMPT_PAUSE_SECONDS,
    SPREAD_SECONDS,
    ListAll,
    Pause,
    Reflector,
    WatchFrom,
)
from services.status.controllers.event_sink import RETRY_SECONDS
from services.status.core.key_queue import KeyQueue
from services.status.core.outage import Outage
from shared.kube.interface import ApiUnreachableError
from shared.kube.rate_limit import TokenBucket

AGENTS = 5000
WATCHES = 54  # of the Node, of pods, and of 52 collections and objects
STATUSES = 3  # pods whose status changes in the outage
EVENTS = 2
HEARTBEAT_SECONDS = 10.0  # between renewals of the lease; the Node's status is written as often
QPS, BURST = 50.0, 100  # kubeAPIQPS, kubeAPIBurst
START_SECONDS = 2.0  # within which an agent sends its first request after its restart, at random
REFUSED = ApiUnreachableError("connection refused")


@dataclass
class AfterOutage:
    """The requests of all agents. `probes` and `requests`: those of each agent in the outage, without heartbeats;
    `requests` includes those that failed before the outage was known. `first`: the number of first requests in each
    second after the return, without the answered probe."""

    outage: float  # seconds
    probes: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    first: Counter[int] = field(default_factory=Counter)

    @property
    def largest_share(self) -> float:
        """The share of the first requests in the second that had most of them."""
        return max(self.first.values()) / self.first.total()

    @property
    def last(self) -> int:
        """The second of the last first request."""
        return max(self.first)


def after_outage(agents: int, outage: float, seed: int = 1) -> AfterOutage:
    """Simulate an outage: every connection is refused for `outage` seconds, and then the API server answers."""
    chance = random.Random(seed)
    result = AfterOutage(outage)
    for _ in range(agents):
        noticed, probes = _notices(outage, chance)
        renewed, sent, times = _writes(outage, chance)
        times += [noticed] + [noticed + SPREAD_SECONDS * chance.random() for _ in range(WATCHES - 1)]
        times += [renewed + RETRY_SECONDS * chance.random() for _ in range(EVENTS)]
        result.probes.append(probes)
        result.requests.append(probes + 1 + sent)  # in sources, the first watch that is opened again begins the outage
        result.first.update(int(when - outage) for when in times)
    return result


def _notices(outage: float, chance: random.Random) -> tuple[float, int]:
    """Return when the probe of sources is answered, and how many probes were sent before."""
    reflector = Reflector(longest_pause=MAX_PROMPT_PAUSE_SECONDS, probes=True)
    reflector.listed("1")
    now, probes = 0.0, 0
    reflector.watch_failed(REFUSED, now=now, chance=chance.random(), opened=True)
    while True:
        match reflector.next_step(chance.random()):
            case Pause(seconds):
                now += seconds
            case ListAll() if now < outage:
                probes += 1
                reflector.list_failed(REFUSED, now=now, chance=chance.random())
            case _:
                return now, probes


def _writes(outage: float, chance: random.Random) -> tuple[float, int, list[float]]:
    """Return when a heartbeat of status is answered, how many other writes it sent in the outage, and when it sent the
    first write of each kind afterwards."""
    beats = [chance.random() * HEARTBEAT_SECONDS for _ in ("lease", "node status")]
    failed, renewed = min(beats), min(outage + (beat - outage) % HEARTBEAT_SECONDS for beat in beats)
    times = [outage + (beat - outage) % HEARTBEAT_SECONDS for beat in beats]
    gate, queue = Outage(), KeyQueue(10)
    now, sent = chance.random() * outage, 0
    for number in range(STATUSES):
        queue.add(f"pod {number}")
    while True:
        key = queue.take(now)
        if key is None:
            now = max(now + 0.001, queue.wake_at() or now)
            continue
        if now >= renewed:
            gate.reached()
        elif now >= failed:
            gate.heartbeat_failed("refused")
        if not gate.error and now >= outage:
            return renewed, sent, times + [now] * STATUSES
        if not gate.error:
            sent += 1
        queue.unanswered(key, now)


def rolling_restart(agents: int, seconds: float, seed: int = 1) -> tuple[Counter[int], Counter[int]]:
    """Simulate that every agent is restarted once within `seconds`, at even distances. Return how many requests, and
    how many lists among them, the API server gets in each second."""
    chance = random.Random(seed)
    requests: Counter[int] = Counter()
    lists: Counter[int] = Counter()
    for number in range(agents):
        began = seconds * number / agents + START_SECONDS * chance.random()
        prompt, others = TokenBucket(QPS, BURST, began), TokenBucket(QPS, BURST, began)
        for watch in range(WATCHES):
            reflector, bucket = Reflector(), prompt if watch < 2 else others
            while True:
                step = reflector.next_step(chance.random())
                second = int(began + bucket.take(began))
                requests[second] += 1
                if isinstance(step, WatchFrom):
                    break
                lists[second] += 1
                reflector.listed("1")
        for _ in ("GET lease", "PUT lease", "GET node", "PATCH node", "GET CSINode"):
            requests[int(began)] += 1
    return requests, lists


def _draw(title: str, counts: Counter[int], step: int) -> None:
    print(f"\n{title}")
    bins = Counter[int]()
    for second, count in counts.items():
        bins[second // step] += count
    largest = max(bins.values())
    for number in range(max(bins) + 1):
        bar = "#" * round(50 * bins[number] / largest)
        print(f"{number * step:5} s {bins[number] / step:9.0f}/s {bar}")


def main() -> None:
    """Print the curves."""
    parser = argparse.ArgumentParser(description="requests of many agents to the API server, in virtual time")
    parser.add_argument("agents", type=int, nargs="?", default=AGENTS)
    agents = parser.parse_args().agents
    for outage in (10.0, 30.0, 60.0, 300.0, 600.0):
        result = after_outage(agents, outage)
        minutes = outage / 60
        print(
            f"outage of {outage:.0f} s: probes a minute {sum(result.probes) / agents / minutes:.2f} in the mean,"
            f" at most {max(result.probes) / minutes:.1f}; with other requests"
            f" {sum(result.requests) / agents / minutes:.2f}; largest second"
            f" {100 * result.largest_share:.1f} % of the first requests, last after {result.last} s"
        )
        if outage == 300.0:
            _draw("first requests after it", result.first, 2)
    for seconds in (0.0, 60.0, 600.0):
        requests, lists = rolling_restart(agents, seconds)
        print(
            f"restart within {seconds:.0f} s: {requests.total() / agents:.0f} requests an agent, at most"
            f" {max(requests.values())} a second, {max(lists.values())} of them lists"
        )
        if seconds == 600.0:
            _draw("requests in it", requests, 30)


if __name__ == "__main__":
    main()
