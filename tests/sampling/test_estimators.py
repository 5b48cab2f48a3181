"""scikit-learn classifiers through ``buckler.Smoothed``: the user's labels in and out, votes by ``predict``."""

import pickle
from typing import Any

import numpy as np
import pytest

import buckler
from buckler.errors import ClassifierError, InvalidInput
from buckler.types import AnyArray

pytest.importorskip("sklearn")

from sklearn.ensemble import RandomForestClassifier, StackingClassifier
from sklearn.feature_selection import RFE
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

CENTRES = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])


def blobs(classes: int, rows: int = 40) -> tuple[AnyArray, AnyArray]:
    """Return points around the first centres and the number of each one's centre."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(classes), rows)
    return CENTRES[y] + 0.4 * generator.standard_normal((len(y), 2)), y


def fitted(names: list[Any], model: Any = None) -> Any:
    x, y = blobs(len(names))
    return (GaussianNB() if model is None else model).fit(x, np.array(names)[y])


@pytest.mark.parametrize("names", [[1, 2, 3], [10, 20, 30], ["cat", "dog", "emu"], [1.0, 2.0, 3.0]])
def test_labels_in_and_out_are_those_of_the_estimator(names: list[Any]) -> None:
    smoothed = buckler.Smoothed(fitted(names), sigma=0.3)
    x = CENTRES[:3]
    made = smoothed.certify(x, n=200, progress=False)
    assert made.predicted.tolist() == names
    assert made.accuracy(names).tolist() == [1.0]
    assert made.accuracy(names[::-1]).round(3).tolist() == [0.333]
    assert smoothed.predict(x[1:2]).tolist() == [names[1]]
    assert smoothed.predict(x, progress=False).tolist() == names
    one = smoothed.certify(x[2:3], n=200, labels=[names[2]])[0]
    assert one.predicted == names[2]
    assert f"class {one.predicted}" in str(one)
    assert (
        smoothed.certify(x[2:3], n=200, labels=[names[0]])[0].predicted is None
    )  # another class than the one predicted
    assert smoothed.certify(x, n=200, labels=names, progress=False).predicted.tolist() == names
    decided = smoothed.certify_until(x[1:2], radii=[0.1], labels=[names[1]])
    assert decided.predicted.tolist() == [names[1]]
    assert made.to_arrow()["predicted"].to_pylist() == names


@pytest.mark.parametrize("names", [[1, 2, 3], ["cat", "dog", "emu"], [0, 1, 2]])
def test_labels_that_the_model_does_not_have_are_refused(names: list[Any]) -> None:
    smoothed, strange = buckler.Smoothed(fitted(names), sigma=0.3), "gnu" if names[0] == "cat" else 7
    with pytest.raises(InvalidInput, match=r"labels must .*(gnu|7)"):
        smoothed.certify(CENTRES[:1], labels=[strange])
    made = smoothed.certify(CENTRES[:3], n=200, progress=False)
    for labels in ([*names[:2], strange], [strange, *names[1:]]):
        with pytest.raises(InvalidInput, match=r"labels must be among the model's classes .*(gnu|7)"):
            made.accuracy(labels)


def test_abstentions_among_texts_are_none() -> None:
    smoothed = buckler.Smoothed(fitted(["a", "b"]), sigma=0.3)
    made = smoothed.certify([[1.0, 0.0], [0.0, 0.0]], n=50, labels=["b", "a"], progress=False)
    assert made.predicted.tolist() == [None, "a"]
    assert made.accuracy(["b", "a"]).tolist() == [0.5]


@pytest.mark.parametrize("names", [[-1, 1], [0.5, 1.5]])
def test_classes_that_are_neither_counts_nor_texts_are_refused(names: list[Any]) -> None:
    """-1 stands for an abstention in arrays of classes."""
    with pytest.raises(InvalidInput, match="model must have classes_"):
        buckler.Smoothed(fitted([str(name) for name in names], _Fixed(names)), sigma=0.3)


class _Fixed:
    """An estimator that says what its classes are."""

    def __init__(self, names: list[Any]) -> None:
        self.classes_ = np.array(names)

    def fit(self, _x: AnyArray, _y: AnyArray) -> "_Fixed":
        return self

    def predict(self, x: AnyArray) -> AnyArray:
        return np.repeat(self.classes_[:1], len(x))

    def predict_proba(self, x: AnyArray) -> AnyArray:
        return np.full((len(x), 2), 0.5)


PAIRS: Any = {"decision_function_shape": "ovo"}


@pytest.mark.parametrize("classes", [3, 4])
@pytest.mark.parametrize(
    "model",
    [
        SVC(**PAIRS),
        NuSVC(**PAIRS),
        make_pipeline(StandardScaler(), SVC(**PAIRS)),
        make_pipeline(StandardScaler(), GridSearchCV(SVC(), {key: [value] for key, value in PAIRS.items()}, cv=2)),
        RFE(SVC(kernel="linear", **PAIRS)),
        StackingClassifier([("a", SVC())], final_estimator=SVC(**PAIRS), cv=2),
    ],
)
def test_pairwise_decision_values_are_refused(model: Any, classes: int) -> None:
    """Three classes have three pairs, whose values would pass for scores of the classes."""
    model = fitted(list(range(classes)), model)
    for scores in (None, buckler.Softmax()):
        with pytest.raises(InvalidInput, match='model must have a score for each class: set decision_function_shape="'):
            buckler.Smoothed(model, sigma=0.3, scores=scores)


@pytest.mark.parametrize(
    ("classes", "model"),
    [
        (2, SVC(**PAIRS)),  # one pair, whose values are those of two classes
        (3, OneVsRestClassifier(SVC(**PAIRS))),
        (3, StackingClassifier([("a", SVC(**PAIRS))], final_estimator=LogisticRegression(), cv=2)),
    ],
)
def test_pairwise_values_inside_of_scores_of_classes_are_accepted(classes: int, model: Any) -> None:
    smoothed = buckler.Smoothed(fitted(list(range(classes)), model), sigma=0.1, scores=buckler.Softmax())
    assert smoothed.certify(CENTRES[:classes], n=200, progress=False).predicted.tolist() == list(range(classes))


class _Counted(_Fixed):
    """An estimator with a score too many."""

    def predict_proba(self, x: AnyArray) -> AnyArray:
        return np.full((len(x), 3), 1 / 3)


def test_an_estimator_without_a_score_for_each_class_is_refused() -> None:
    with pytest.raises(ClassifierError, match=r"score for each of 2 classes; got shape \(\d+, 3\)"):
        buckler.Smoothed(_Counted([0, 1]), sigma=0.3).certify(CENTRES[:1], n=20)
    with pytest.raises(InvalidInput, match="must be a fitted scikit-learn classifier"):
        buckler.Smoothed(LogisticRegression(), sigma=0.3)
    x, y = blobs(3)
    for several in (np.stack([y, y], axis=1), np.stack([y, y > 0], axis=1)):
        with pytest.raises(InvalidInput, match="must have one output of at least two classes"):
            buckler.Smoothed(RandomForestClassifier(5).fit(x, several), sigma=0.3)


@pytest.mark.parametrize(
    "model",
    [
        SVC(),  # breaks ties of pairwise votes by position, and its decision function by confidence
        LogisticRegression(),
        LinearSVC(),
        RandomForestClassifier(10, random_state=0),
        KNeighborsClassifier(2),  # halves tie
    ],
)
def test_votes_are_those_of_predict(model: Any) -> None:
    x, _ = blobs(3)
    model = fitted([1, 2, 3], model)
    seen: list[AnyArray] = []

    class Spied:
        classes_ = model.classes_

        def predict(self, rows: AnyArray) -> AnyArray:
            seen.append(rows.copy())
            return np.asarray(model.predict(rows))

        def decision_function(self, rows: AnyArray) -> AnyArray:
            known = getattr(model, "decision_function", None) or model.predict_proba
            return np.asarray(known(rows))

    votes = buckler.sampling.engine.Engine(
        buckler.sampling.classifiers.as_classifier(Spied()), sigma=1.0, batch_size=500
    ).votes(x[:1], ["a"], "estimation", 2000)
    rows = np.concatenate([rows for rows in seen if len(rows) == 500])  # without those that are run again
    expected = [(model.predict(rows) == label).sum() for label in (1, 2, 3)]
    assert votes.tolist() == [expected]


def test_commands_refuse_a_model_with_other_classes(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data of commands are labelled 0 to m - 1, and votes are stored by column."""
    (tmp_path / "other_classes.py").write_text(
        "from sklearn.naive_bayes import GaussianNB\n\n"
        "ready = GaussianNB().fit([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], [1, 2, 3])\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidInput, match=r"model must have the classes 0 to 2 here; got \(1, 2, 3\)"):
        buckler.Smoothed("other_classes:ready", sigma=0.5)


def scaled(batch: AnyArray) -> AnyArray:
    return batch * 2.0


@pytest.mark.parametrize("model", [fitted([0, 1, 2]), scaled, buckler.Normalized(scaled, 0.5, 2.0)])
def test_a_smoothed_classifier_can_be_sent_to_another_process(model: Any) -> None:
    smoothed = buckler.Smoothed(model, sigma=0.3, num_classes=None if hasattr(model, "predict") else 2)
    there = pickle.loads(pickle.dumps(smoothed))  # noqa: S301  (our own)
    assert there.certify(CENTRES[:2], n=200, progress=False) == smoothed.certify(CENTRES[:2], n=200, progress=False)
