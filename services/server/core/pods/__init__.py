"""Finds pods and containers in the streams of the bus, for the lists and for requests about one container. Pure."""
