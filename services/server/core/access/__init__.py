"""Decides who sends a request, and what the API server is asked about the right to it. Pure."""
