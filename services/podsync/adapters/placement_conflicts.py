"""Finds why podsync would not start: the policies for CPUs, memory and devices against this machine and the files of an
agent before (node.md 4.10-4.12). `bulkhead config check` shows it before the start.
"""

from pathlib import Path

from services.podsync.adapters.inherited_placements import compare_files
from services.podsync.adapters.node_placer import read_node_placer
from services.podsync.adapters.placement_files import PlacementFiles
from shared.config.effective import EffectiveConfig
from shared.errors import OperatorError


def find_placement_conflicts(config: EffectiveConfig, root: Path = Path("/")) -> list[OperatorError]:
    """Return a line for each conflict; [] = podsync starts. `root`: the directory below which the machine is read.
    Changes nothing."""
    found: list[OperatorError] = []
    try:
        placer = read_node_placer(config, root, found.append)
        compare_files(config, placer, PlacementFiles(Path(config.root_dir)), found.append)
    except OperatorError as error:
        found.append(error)
    return found
