"""The command line: each command parses its options, makes one call of the library, and ends with an exit code.

Commands stand in files by what they work on.
Exit codes: 0 done; 2 the user's mistake, one line on stderr and no traceback; 3 interrupted, resumable; 1 our bug.
``main`` is the entry point. May import: every room.
"""

from buckler.cli.app import main as main
