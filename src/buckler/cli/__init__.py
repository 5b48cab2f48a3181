"""The command line: one file per command, each parse -> one call -> exit code.

Exit codes: 0 done; 2 the user's mistake, one line on stderr and no traceback; 3 interrupted, resumable; 1 our bug.
``main`` is the entry point. May import: every room.
"""

from buckler.cli.app import main as main
