"""Carries out one call of the core: runtime requests, hooks, directories. Decides neither which call nor when."""
