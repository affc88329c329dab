"""`python -P -m services.kubelet`: the executable by another name."""

import sys

from services.kubelet.command import main

if __name__ == "__main__":
    sys.exit(main())
