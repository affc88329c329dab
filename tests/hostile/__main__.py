"""Runs one kind of hostile input in this process, and prints the figures as one JSON object."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop

from tests.hostile.documents import read_hostile_yaml
from tests.hostile.probes import probe_hostile_servers

if __name__ == "__main__":
    what, seconds, seed = sys.argv[1], float(sys.argv[2]), sys.argv[3]
    if what == "probes":
        strain = uvloop.run(probe_hostile_servers(seconds, seed))
    else:
        with TemporaryDirectory() as directory:
            strain = uvloop.run(read_hostile_yaml(seconds, seed, Path(directory)))
    print(json.dumps(strain.as_json(), indent=1))
    sys.exit(not strain.within_limits())
