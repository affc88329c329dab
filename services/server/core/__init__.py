"""The decisions of the HTTP server: routes, authorization, health, lists, log selection and log decoding. Pure."""
