"""The metrics of one process: families as they are declared, and the counters, gauges and histograms that count.

Pure but for the values that the instruments hold. Instruments belong to the event loop's thread. How metrics travel is
in `bus.messages.metrics`, what is served in `services.server`.
"""
