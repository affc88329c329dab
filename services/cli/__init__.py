"""The operator's command line `bulkhead`: explains a pod, checks and shows a configuration. Starts and changes nothing.

`command` imports the code of each subcommand when that subcommand runs.
"""
