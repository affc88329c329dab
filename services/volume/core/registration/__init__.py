"""Decides which plugins are registered, from their sockets and their answers. Pure."""
