"""Lists all scenarios in the order in which a session runs them; their figures are the rows of the report."""

from bench.figure import Figure, Scenario
from bench.scenarios import boot, changes, exits, floor, idle, node, pods, port, stats, streaming, volumes

SCENARIOS: tuple[Scenario, ...] = (
    *floor.SCENARIOS,
    *idle.SCENARIOS[:1],  # before the first pod
    *node.SCENARIOS,
    *pods.SCENARIOS,
    *exits.SCENARIOS,
    *changes.SCENARIOS,
    *volumes.SCENARIOS,
    *idle.SCENARIOS[1:],
    *stats.SCENARIOS,
    *streaming.SCENARIOS,
    *port.SCENARIOS,
    *boot.SCENARIOS,
    *node.KILLS,  # run last, because what it leaves behind would disturb others
)


def figures(scenarios: tuple[Scenario, ...] = SCENARIOS) -> dict[str, Figure]:
    """Return every figure of the scenarios by its key, in the order of the report."""
    return {figure.key: figure for scenario in scenarios for figure in scenario.figures}
