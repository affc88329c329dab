"""`python -m tests.simulation --seeds 10000 [--from N] [--jobs 2]`: runs seeds; a failing one prints a story."""

import argparse
import functools
import multiprocessing
import os
import sys
import time

from tests.simulation.mutants import MUTANTS
from tests.simulation.run import clear_memory, in_memory
from tests.simulation.seeds import work

_PROGRESS_SECONDS = 10.0
FIRST = int(os.environ.get("FIRST_SEED", "0"))  # make night sets another one each time


def main() -> int:
    """0 = all seeds came to the end of their undisturbed runs; 1 = not all of them."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many (default 200)")
    parser.add_argument("--from", type=int, default=FIRST, dest="first", help=f"the first seed (default {FIRST})")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once (default 1)")
    parser.add_argument("--keep-going", action="store_true", help="do not end at the first failing seed")
    parser.add_argument("--story", action="store_true", help="print the complete story of each seed")
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="break the agent in this way first")
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    began = shown = time.monotonic()
    failed, done = 0, 0
    one = functools.partial(work, mutant=given.mutant, complete=given.story)
    context = multiprocessing.get_context("spawn")
    with context.Pool(given.jobs, in_memory, ("jobs",)) as pool:
        for seed, text, bad in pool.imap_unordered(one, seeds, chunksize=4):
            done += 1
            failed += bad
            if text:
                print(f"seed {seed}: {text}", flush=True)
            now = time.monotonic()
            if now - shown > _PROGRESS_SECONDS:
                shown = now
                rate = done / (now - began)
                print(f"{done} of {len(seeds)} seeds, {failed} failed, {rate:.1f}/s", file=sys.stderr, flush=True)
            if bad and not given.keep_going:
                break
        pool.terminate()
    print(f"{done} seeds from {given.first} in {time.monotonic() - began:.0f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    finally:
        clear_memory("jobs")
