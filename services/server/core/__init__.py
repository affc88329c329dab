"""Decides for the HTTP server: routes, authorization, health, lists, log selection and log decoding. Pure.

`routes` chooses the handler of a request; `go_text` has texts and numbers as Go writes them. A room imports other
rooms only as this table allows:

    room       decides                                           imports
    streams    how exec, attach and port-forward are bridged     access go_text
    access     who sends a request, and what is asked about it   listening
    listening  how many connections there are, and their TLS     nothing
    routes     which handler a request means                     go_text
    logs       which log or file answers, and which bytes        go_text
    pods       which pods and containers a request means         go_text
    pages      health, the node page, status, flags, profiles    go_text
    metrics    the pages of metrics and usage                    nothing
    go_text    texts and numbers as Go writes them               nothing
"""
