"""Decides how exec, attach and port-forward are bridged: parameters, frames, heads and ends. Pure."""
