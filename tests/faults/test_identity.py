"""Another model, other data or another machine under a run's name: refused or told, never mixed in silence."""

from pathlib import Path

import numpy as np
import pytest

from tests.faults.run import Ledger, arguments, call, contents, differing, lost, sealed

pytestmark = pytest.mark.faults

SWAPPED = {
    "global": "SCALE = 1.01\ndef model(b):\n    return flat(b) @ W * np.float32(SCALE)\n",
    "default": "def model(b, *, scale=1.01):\n    return flat(b) @ W * np.float32(scale)\n",
    "method": "class M:\n    def help(self, z):\n        return z + 0.01\n    def __call__(self, b):\n"
    "        return self.help(flat(b) @ W) * np.float32(0.99)\nmodel = M()\n",
    "permuted": "def model(b):\n    return (flat(b) @ W)[:, ::-1]\n",
}
HEAD = "import numpy as np\nW = np.load('weights.npy')\ndef flat(b):\n    return b.reshape(len(b), -1)\n"
TAIL = "def make():\n    return model\n"


@pytest.fixture
def begun(home: Path) -> Path:
    """A run of two shards."""
    assert call(home, [*arguments("run"), "--max-samples", "4000"])[0] == 3
    return home


def test_another_model_under_any_guise(begun: Path, undisturbed: Path, ledger: Ledger) -> None:
    before = contents(begun / "run")
    mixed = 0
    for name, source in SWAPPED.items():
        (begun / f"swapped_{name}.py").write_text(HEAD + source + TAIL)
        code, said = call(begun, arguments("run", model=f"swapped_{name}:make"))
        mixed += code != 2 or "another model: its logits" not in said
    changed = differing(contents(begun / "run"), before)
    # The same function under another name, in other words.
    (begun / "renamed.py").write_text(HEAD + "model = lambda b: flat(b) @ W  # as before\n" + TAIL)
    assert call(begun, arguments("run", model="renamed:make", data=str(begun / "data.npz")))[0] == 0
    wrong = changed + differing(contents(begun / "run" / "shards"), contents(undisturbed / "shards"))
    ledger.add("identity: another model, however hidden: refused", len(SWAPPED), 0, wrong, mixed)
    assert (mixed, wrong) == (0, 0)


def test_hard_labels_and_refitted_estimators(home: Path, ledger: Ledger) -> None:
    """Models whose few answers are often the same: other weights of a hard-label model, a refitted estimator."""
    (home / "hard.py").write_text(
        HEAD + "from sklearn.neighbors import KNeighborsClassifier\n"
        "def hard(shift):\n    return lambda b: np.eye(10)[(flat(b) @ (W + np.float32(shift) * W[::-1])).argmax(1)]\n"
        "def knn(seed):\n    rng = np.random.default_rng(seed)\n"
        "    return KNeighborsClassifier(3).fit(rng.random((50, 64)), np.arange(50) % 10)\n"
        + "".join(
            f"def hard{k}():\n    return hard({k} * 0.002)\ndef knn{k}():\n    return knn({k})\n" for k in range(9)
        )
    )
    mixed = 0
    for kind in ("hard", "knn"):
        begin = arguments(kind, model=f"hard:{kind}0", scores="none", runner_ups=None)
        assert call(home, [*begin, "--max-samples", "4000"], apart=False)[0] == 3
        before = contents(home / kind)
        for k in range(1, 9):
            other = arguments(kind, model=f"hard:{kind}{k}", scores="none", runner_ups=None)
            code, said = call(home, other, apart=False)
            mixed += code != 2 or "another model" not in said
        assert differing(contents(home / kind), before) == 0
        assert call(home, begin, apart=False)[0] == 0
    ledger.add("identity: hard labels of another model, a refitted estimator", 16, 0, 0, mixed)
    assert mixed == 0


def test_other_data_under_the_same_name(begun: Path, undisturbed: Path, ledger: Ledger) -> None:
    whole = (begun / "data.npz").read_bytes()
    arrays = dict(np.load(begun / "data.npz"))
    before = sealed(begun / "run")
    mixed = 0
    for place in (0, 1, 39):  # the first, one that was drawn, the last
        x = arrays["x"].copy()
        x[place] = x[place][..., ::-1]
        np.savez(begun / "data.npz", x=x, y=arrays["y"])
        mixed += call(begun, arguments("run"))[0] != 2
    np.savez(begun / "data.npz", x=arrays["x"], y=(arrays["y"] + 1) % 10)
    mixed += call(begun, arguments("run"))[0] != 2
    gone = lost(before, sealed(begun / "run"))
    (begun / "data.npz").write_bytes(whole)
    assert call(begun, arguments("run"))[0] == 0
    wrong = differing(contents(begun / "run"), contents(undisturbed))
    ledger.add("identity: other inputs or labels in the same place: refused", 4, gone, wrong, mixed)
    assert (gone, mixed, wrong) == (0, 0, 0)


def test_another_environment_and_a_lost_manifest(begun: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sealed(begun / "run")
    monkeypatch.setattr("buckler.runs.identity.environment", lambda _: {"numpy": "0.0", "device": "cpu"})
    mixed = int(call(begun, arguments("run"), apart=False)[0] != 2)
    assert call(begun, [*arguments("run"), "--allow-other-model"], apart=False)[0] == 0
    for lose in ("manifest kept", "manifest deleted"):
        if lose == "manifest deleted":
            (begun / "run" / "manifest.json").unlink()
            mixed += call(begun, arguments("run"), apart=False)[0] != 0
        said = call(begun, ["certify", "run"], apart=False)[1]
        mixed += "Drawn by 2 models or environments (8, 32 inputs)" not in said
    gone = lost(before, sealed(begun / "run"))
    ledger.add("environment: refused, or told of every input", 3, gone, 0, mixed)
    assert (gone, mixed) == (0, 0)
