"""Defines the operations on the outside world, their ends and delays, and how they may change files. Pure."""
