"""All contracts of the API server."""

from tests.contracts import api_certificates, api_nodes, api_reads, api_writes  # noqa: F401  # each adds its own
from tests.contracts.api_cluster import CONTRACTS, Contract

__all__ = ["CONTRACTS", "Contract"]
