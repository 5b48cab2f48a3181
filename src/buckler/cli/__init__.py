"""The command line: commands in files by what they work on, each parse -> one call -> exit code.

Exit codes: 0 done; 2 the user's mistake, one line on stderr and no traceback; 3 interrupted, resumable; 1 our bug.
``main`` is the entry point. May import: every room.
"""

from buckler.cli.app import main as main
