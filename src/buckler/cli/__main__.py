"""``python -m buckler.cli`` is the command ``buckler``."""

from buckler.cli import main

main()
