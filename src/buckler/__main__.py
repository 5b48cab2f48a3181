"""``python -m buckler`` is the command ``buckler``."""

from buckler.cli import main

main()
