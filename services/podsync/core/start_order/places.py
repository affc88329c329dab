"""Decides how many pods start at once: by the number of CPUs, and fewer while tasks wait for a CPU (PSI), where the
kernel tells.
"""

MIN_PLACES = 4
PLACES_PER_CPU = 4  # the runtime serves half as many calls at once; the rest of a start is other work
MAX_PRESSURE_PERCENT = 80.0  # of the last 10 s in which a task waited for a CPU; above it half as many pods start


def start_places(cpus: int, pressure_percent: float | None) -> int:
    """Return how many pods start at once. `pressure_percent`: None = the kernel does not tell."""
    places = max(2 * MIN_PLACES, PLACES_PER_CPU * cpus)
    under_pressure = pressure_percent is not None and pressure_percent > MAX_PRESSURE_PERCENT
    return max(MIN_PLACES, places // 2) if under_pressure else places
