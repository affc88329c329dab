"""`python -P -m services.bootstrap.containerd`: run the keeper of the embedded containerd (supervisord's program)."""

from services.bootstrap.controllers.containerd_keeper import main

if __name__ == "__main__":
    main()
