"""Hostile input by a seed: servers behind probes and hooks, and YAML.

`python -m tests.hostile probes|yaml SECONDS SEED` prints the figures.
"""
