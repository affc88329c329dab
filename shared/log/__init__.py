"""The log of each process: klog's forms, which records show, the log file and a copy of it."""
