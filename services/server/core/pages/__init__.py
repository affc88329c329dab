"""Makes what people look at: health, the node page and its history, status, flags and profiles. Pure."""
