"""The command line: ``teatime``, or ``python -m teatime``."""

import os
import sys


def main() -> None:
    """Runs the command line and ends the process with its status."""
    from ._teatime import command_line

    status = command_line(["teatime", *sys.argv[1:]])
    sys.stdout.flush()
    # Threads of a device may still run code of a driver. They have nothing left to finish.
    os._exit(status)


if __name__ == "__main__":
    main()
