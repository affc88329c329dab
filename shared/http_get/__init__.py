"""The HTTP GET of probes and lifecycle hooks; only HTTP/2 is a library's (h2), loaded when it is first met."""
