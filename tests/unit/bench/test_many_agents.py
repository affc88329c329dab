"""5 000 agents do not keep an API server from its start, and do not all come in the second of its return."""

from statistics import mean

from bench.many_agents import AGENTS, WATCHES, after_outage, rolling_restart

MINUTES = 5


def test_agents_probe_rarely_in_an_outage_and_come_back_at_different_times() -> None:
    result = after_outage(AGENTS, MINUTES * 60.0)
    assert mean(result.probes) / MINUTES > 1, "they do look for its return"
    assert max(result.probes) / MINUTES <= 2
    assert mean(result.requests) / MINUTES <= 2
    assert result.first.total() >= AGENTS * WATCHES
    assert result.largest_share <= 0.05
    assert result.last < 75


def test_an_agent_that_starts_lists_and_watches_everything_once() -> None:
    requests, lists = rolling_restart(AGENTS, 600.0)
    assert (requests.total(), lists.total()) == (AGENTS * (2 * WATCHES + 5), AGENTS * WATCHES)
    assert max(requests.values()) < 2 * requests.total() / 600
