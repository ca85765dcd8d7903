"""The command line: ``python -m benchmarks COMMAND``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from benchmarks.commands import build_parser
from benchmarks.errors import DataError, SettingsError
from benchmarks.signals import sigterm_like_ctrl_c
from stn_tune.errors import AnalysisError, RecordError


def main(argv: Sequence[str] | None = None) -> int:
    """Parses the arguments and runs a command; gives its exit code."""
    arguments = build_parser().parse_args(argv)
    with sigterm_like_ctrl_c() as received:
        try:
            return arguments.execute(arguments) or 0
        except (AnalysisError, DataError, RecordError, SettingsError) as error:
            print(f"benchmarks: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 128 + (received[0] if received else signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
