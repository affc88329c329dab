"""`python -P -m services.dockershim`: run the shim in front of Docker (supervisord's program `dockershim`)."""

from services.dockershim.program import main

if __name__ == "__main__":
    main()
