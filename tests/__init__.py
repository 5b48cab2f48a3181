"""The tests; a package and not a mere folder, since some libraries install a package of this name."""
