"""Makes the pages of metrics and of usage from readings of pleg and the counters of all processes. Pure."""
