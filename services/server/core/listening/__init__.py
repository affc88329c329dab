"""Decides what a listener accepts: how many connections and requests, from whom, and with which TLS. Pure."""
