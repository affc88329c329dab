"""Rotates and removes log files of containers. Decides neither which nor when (`core.logs` does)."""
