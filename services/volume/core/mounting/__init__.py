"""Decides what is mounted, expanded, set up again and unmounted, and what `volumes.mounted` shows of it. Pure."""
