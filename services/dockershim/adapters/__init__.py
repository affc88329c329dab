"""Reaches Docker's API, the programs of CNI, log files and the connections of clients."""
