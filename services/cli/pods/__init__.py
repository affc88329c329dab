"""The pods of this node: listed, described, applied and deleted, their logs, a command in a container."""
