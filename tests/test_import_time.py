"""``import buckler`` is quick and light, measured in a fresh interpreter, by the time of its processor alone."""

import subprocess
import sys

HEAVY = ("torch", "ray", "matplotlib", "scipy.stats", "numba", "sklearn", "pyarrow")
PROBE = f"""
import sys, time
start = time.process_time()
import buckler
spent = time.process_time() - start
print(spent)
print([name for name in {HEAVY!r} if name in sys.modules])
buckler.certify_votes([[90, 10]], sigma=1.0, method="top_class")
print([name for name in {HEAVY!r} if name in sys.modules])
"""


def fresh() -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.splitlines()


def test_import_is_quick_and_light() -> None:
    runs = [fresh() for _ in range(3)]
    assert min(float(run[0]) for run in runs) < 0.5
    assert runs[0][1] == "[]"
    assert runs[0][2] == "[]"


def test_every_public_name_loads() -> None:
    import buckler

    assert [name for name in buckler.__all__ if getattr(buckler, name, None) is None] == []
    assert set(buckler.__all__) == set(dir(buckler))
