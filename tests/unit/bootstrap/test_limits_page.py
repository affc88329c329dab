"""docs/limits.md has the numbers for the configuration that a Node names that the code has."""

from pathlib import Path

from services.bootstrap.core import config_source, node_config

PAGE = Path(__file__).parents[3] / "docs" / "limits.md"


def test_the_rows_for_the_configuration_of_the_node_are_what_the_code_has() -> None:
    starts = f"starts of one service within the trial of {node_config.TRIAL_SECONDS:.0f} s, without an end on request"
    rows = (
        f"| bytes of all values of the ConfigMap | {config_source.MAX_CONFIG_MAP_BYTES >> 20} MiB |",
        f"| keys of the ConfigMap | {config_source._MAX_KEYS} |",
        f"| {starts} | {node_config.MAX_TRIAL_STARTS} |",
    )
    assert not [row for row in rows if row not in PAGE.read_text()]
