"""`python -m apportion` is the program `apportion`. An interruption while it is imported ends it in one line, too."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> None:
    """Entry point of the installed program, and of `python -m apportion`."""
    try:
        from apportion.cli.main import main as program
    except KeyboardInterrupt:
        sys.stderr.write("Error: Interrupted.\n")
        sys.exit(INTERRUPTED)
    program()


if __name__ == "__main__":
    main()
