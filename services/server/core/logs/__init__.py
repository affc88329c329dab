"""Decides which log or file of the node answers a request, and which bytes of it. Pure."""
