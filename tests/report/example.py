"""A small report with every feature on it, and hostile text wherever text can come from outside."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import buckler
from buckler.certificate import PairTest, Refutation
from buckler.certificates import Certificates
from buckler.evaluate.curves import certified_accuracy, radius_histogram, round_grid
from buckler.report.html import Page, RunPage, Series, report_page, tiles
from buckler.report.pages import described, promise
from buckler.runs.results import TopVotes, top_votes
from buckler.types import IntArray

ATTACK = "<script>window.broken=1</script><img src=x onerror=window.broken=1>'\"&\u2028</title></style>"
FORMULA = '=HYPERLINK("http://example.invalid","x")'
METHODS = ("exact", "bonferroni")
INPUTS = 120
CLASSES = ("cat", ATTACK, "dog")


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    ids: tuple[str, ...]
    labels: IntArray
    groups: dict[str, Certificates]
    votes: TopVotes


def example(inputs: int = INPUTS, seed: int = 0, methods: Sequence[str] = METHODS) -> Example:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, inputs)
    chances = rng.dirichlet([0.4, 0.2, 0.2], inputs)
    chances.sort(axis=1)
    votes = np.stack([rng.multinomial(200, row) for row in chances[:, ::-1]])
    shift = np.where(rng.random(inputs) < 0.9, labels, (labels + 1) % 3)
    votes = np.stack([np.roll(row, k) for row, k in zip(votes, shift, strict=True)])
    ids = (ATTACK, FORMULA, *(f"image {i}" for i in range(2, inputs)))
    groups: dict[str, Certificates] = {}
    for method in methods:
        made = buckler.certify_votes(votes, sigma=0.5, selection=votes // 2 + 1, method=method, ids=ids)
        groups[method] = made
    return Example(ids, labels, groups, top_votes([votes]))


def page(made: Example, *, labelled: bool = True, pictures: bool = True, title: str = "Example") -> str:
    radii, edges = round_grid(1.3, 100), round_grid(1.3, 20)
    truth = made.labels if labelled else None
    series = [
        Series(
            name,
            name,
            0,
            group,
            certified_accuracy(group, truth, radii, name=name),
            radius_histogram(group, truth, edges),
        )
        for name, group in made.groups.items()
    ]
    images = np.random.default_rng(1).random((len(made.ids), 3, 32, 32))
    noise = made.groups[METHODS[0]].first.noise
    beyond = Refutation("image 2", 0, 0.70005, 1, images[0], 1e-3, noise, (PairTest(0.70005, 1, 100, 90, 5, True),))
    run = RunPage(
        name=f"run {ATTACK}",
        sentence=described(list(made.groups.values()), f"The model {ATTACK}", "shapes"),
        ids=made.ids,
        labels=truth,
        facts={"Sampling": {"model": ATTACK, "sigma": "0.5"}},
        spec_toml=f'model = "{ATTACK}"',
        commands=[f"buckler report '{ATTACK}'"],
        tiles=tiles(images, 0.0, 1.0) if pictures else (),
        votes=made.votes,
        refutations=[beyond],
        points=tiles(images[:1], 0.0, 1.0) if pictures else (),
    )
    said = promise(list(made.groups.values()), 1e-3)
    return report_page(Page([run], series, title, said, CLASSES))
