"""One-token mutants of what certificates rest on, and whether the tests notice: ``python -m tests.mutants --help``.

A mutant is the source with one operator, constant or name changed; a test suite that stays green on it does not look
there. ``making`` makes them, ``trying`` runs the tests of the mutant's room and then the audits in a copy of the tree,
``excuses.toml`` says which of those that live may, and why.

Why not mutmut or cosmic-ray. mutmut 3 writes all mutants of a function into one module behind a switch that is read
when the function is called: numba compiles what it sees once, and keeps the code in a folder named by a digest of the
sources, which would be the same for every mutant, so all of them would run the code of the first. cosmic-ray edits
the one tree in place, beside which that folder lies, runs one command for every mutant, and needs a server for each
further process. Here each process has a tree of its own, a mutant of a kernel has sources, digest and code of its
own, and a test file that is likely to notice runs before an audit of minutes.
"""
