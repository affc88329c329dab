"""`python -P -m services.pleg`: run pleg."""

from services.frame.launch import launch
from services.pleg.service import build

if __name__ == "__main__":
    launch("pleg", build)
