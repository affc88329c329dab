"""A whole node in one process and on virtual time: the real services, a seeded workload, seeded faults, an oracle."""
