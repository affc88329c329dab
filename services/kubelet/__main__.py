"""`python -P -m services.kubelet` runs the executable `kubelet`."""

import sys

from services.kubelet.command import main

if __name__ == "__main__":
    sys.exit(main())
