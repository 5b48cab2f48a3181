"""The import law: which room imports which, where third parties live, and that ``import buckler`` is light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "buckler"
ROOT = {"types", "errors", "certificate", "certificates", "files"}
MAY_SEE = {
    "types": set[str](),
    "errors": {"types"},
    "certificate": {"types", "errors"},
    "certificates": {"types", "errors", "certificate"},
    "files": {"types", "errors"},
    "noise": ROOT,
    "bounds": ROOT,
    "certify": ROOT | {"noise", "bounds"},
    "evaluate": ROOT | {"noise", "bounds", "certify"},
    "sampling": ROOT | {"noise"},
    "training": ROOT | {"noise", "sampling"},
    "runs": ROOT | {"noise", "sampling", "certify", "evaluate", "session"},
    "report": ROOT | {"noise", "bounds", "certify", "evaluate", "runs"},
    "progress": set[str](),
    "session": ROOT | {"noise", "sampling", "certify", "evaluate"},
    "smoothed": ROOT | {"noise", "sampling", "certify", "evaluate", "session", "progress"},
}
MAY_SEE["routed"] = MAY_SEE["smoothed"] | {"smoothed"}
MAY_SEE["compat"] = ROOT | {"sampling", "smoothed"}
WHEN_CALLED = {"certificates": {"certify", "evaluate", "report", "runs"}, "evaluate": {"report"}}
"""What people hold asks rooms above it, inside of its methods alone: ``import buckler`` does not load them."""
MAY_SEE["paper"] = MAY_SEE.keys() - {"cli"}
MAY_SEE["cli"] = set(MAY_SEE)
MAY_SEE["__main__"] = {"cli"}
ONLY_IN = {
    "torch": ("sampling/", "training/", "evaluate/attacks.py"),
    "triton": ("sampling/kernels.py",),
    "safetensors": ("sampling/", "training/"),
    "onnxruntime": ("sampling/",),
    "sklearn": ("sampling/", "training/"),
    "numba": ("bounds/",),
    "pyarrow": ("runs/store",),
    "ray": ("runs/executor.py",),
    "matplotlib": ("report/",),
    "jinja2": ("report/", "paper/page.py"),
    "vl_convert": ("report/",),
    "markupsafe": ("report/",),
    "typer": ("cli/",),
    "PIL": ("sampling/", "report/"),
    "filelock": ("runs/store/folder.py",),
}
FORBIDDEN = {"pickle", "marshal", "shelve", "torchvision", "timm"} | {"fcntl", "pwd", "grp", "resource", "msvcrt"}
"""Modules that can run what they read, that do not import beside a CPU build of torch, or that one platform has."""


def imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the room"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_the_top(source: str) -> set[str]:
    """Return what a module imports when it is loaded."""
    top = ast.parse(source)
    top.body = [node for node in top.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return set(imports(ast.unparse(top)))


def breaches(path: str, source: str) -> list[str]:
    room = path.split("/", maxsplit=1)[0].removesuffix(".py")
    found = []
    for name in imports(source):
        head, *rest = name.split(".")
        if head == "buckler":
            target = rest[0] if rest else ""
            if target not in MAY_SEE | {"__version__": None} and target != room:
                found.append(f"{path}: {name} is not a room")
            elif target in WHEN_CALLED.get(room, ()) and name not in at_the_top(source):
                continue
            elif target not in MAY_SEE[room] | {room, "__version__"}:
                found.append(f"{path}: {room} must not see {target} ({name})")
        elif head in FORBIDDEN:
            found.append(f"{path}: {head} is not welcome anywhere")
        elif head in ONLY_IN and not path.startswith(ONLY_IN[head]):
            found.append(f"{path}: {head} belongs in {ONLY_IN[head]}")
        elif name.startswith("scipy.stats"):
            found.append(f"{path}: scipy.stats is slow to import; use scipy.special")
        elif head in {"importlib", "builtins"} and rest and rest[0] in {"eval", "exec"}:
            found.append(f"{path}: {name}")
    return found


MODULES = sorted(
    p.relative_to(SOURCE).as_posix() for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.name != "__init__.py"
)


def test_law_holds() -> None:
    assert [b for path in MODULES for b in breaches(path, (SOURCE / path).read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("bounds/binomial.py", "from buckler.certify import budget"),
        ("noise/gaussian.py", "from buckler.certify import margins"),
        ("bounds/binomial.py", "from buckler.noise import Gaussian"),
        ("sampling/engine.py", "import buckler.certify.methods"),
        ("certify/methods.py", "from buckler.runs.store import evidence"),
        ("certify/methods.py", "from buckler.paper import methods"),
        ("runs/sweep.py", "from buckler.paper.library import Library"),
        ("report/plots.py", "import buckler.paper.printed"),
        ("paper/page.py", "from buckler.cli.app import run"),
        ("paper/reproduced.py", "import matplotlib"),
        ("report/plots.py", "import torch"),
        ("certify/votes.py", "import numba"),
        ("smoothed.py", "from buckler.runs.spec import RunSpec"),
        ("runs/decide.py", "from buckler.smoothed import Smoothed"),
        ("runs/spec.py", "import pyarrow as pa"),
        ("runs/executor.py", "import pickle"),
        ("noise/gaussian.py", "from scipy.stats import norm"),
        ("runs/store/folder.py", "import fcntl"),
        ("runs/store/shard.py", "from filelock import FileLock"),
        ("certify/settings.py", "from buckler.utils import helper"),
        ("certificates.py", "from buckler.evaluate.curves import Curve"),
        ("certificates.py", "def plot():\n    from buckler.sampling.engine import Engine"),
    ],
)
def test_breach_is_found(path: str, source: str) -> None:
    assert len(breaches(path, source)) == 1


def public_names(source: str) -> set[str]:
    """Return the public functions, classes and constants that a module defines at its top."""
    found = set[str]()
    for node in ast.parse(source).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return {name for name in found if not name.startswith("_")}


def defined_twice(sources: dict[str, str]) -> dict[str, list[str]]:
    modules: dict[str, list[str]] = {}
    for path, source in sources.items():
        for name in public_names(source):
            modules.setdefault(name, []).append(path)
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def test_public_names_have_one_meaning() -> None:
    assert defined_twice({path: (SOURCE / path).read_text(encoding="utf-8") for path in MODULES}) == {}
    planted = {"a.py": "NEAR, FAR = 1, 2\n_OWN = 3\nclass Cell: ...", "b.py": "FAR: int = 5\n_OWN = 4\ndef Cell(): ..."}
    assert defined_twice(planted) == {name: ["a.py", "b.py"] for name in ("FAR", "Cell")}


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
