"""Groups: rows that no fold, cross-fit, vote, split or held-out part may separate."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
import torch

from onepos import SinglePositiveClassifier, held_out_probabilities, train_val_test_split
from onepos.methods import make_method
from onepos.methods.base import Watch
from onepos.methods.crossfit import CrossFitSettings, _frequency, _vote, cross_fit
from onepos.methods.fold_models import NetworkSettings, TreeSettings, make_folds
from onepos.training import loop
from onepos.training.plan import Plan
from onepos.training.samples import DenseRows
from onepos.training.task import TrainingData, make_task
from onepos.validation import read_groups

SHORT = CrossFitSettings(
    linear=NetworkSettings(0, ((0.05, 0.0),), most_epochs=12, most_steps=12),
    layered=NetworkSettings(16, ((0.02, 0.0),), most_epochs=12, most_steps=12),
    trees=TreeSettings(n_trees=8),
)


def kept_whole(groups, parts):
    """Whether each group is in one part."""
    where = {}
    for number, part in enumerate(parts):
        for row in np.asarray(part).tolist():
            where.setdefault(groups[row], set()).add(number)
    return all(len(numbers) == 1 for numbers in where.values())


# the leak


def test_duplicated_rows_inflate_the_held_out_likelihood_without_groups_and_not_with_them():
    """Labels that the rows say nothing about: only a copy of the row in another fold can give them away."""
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(150, 8)), rng.integers(0, 4, 150)
    copied, labels, groups = np.repeat(X, 3, axis=0), np.repeat(label, 3), np.repeat(np.arange(150), 3)
    share = np.bincount(label) / 150
    entropy = -(share * np.log(share)).sum()
    leaking = held_out_probabilities(copied, labels, random_state=0, settings=SHORT)
    honest = held_out_probabilities(copied, labels, groups=groups, random_state=0, settings=SHORT)
    once = held_out_probabilities(X, label, random_state=0, settings=SHORT)
    assert leaking.cross_entropy < 0.5 * entropy, "the likelihood is far too high"
    assert honest.cross_entropy > entropy - 0.02
    assert honest.cross_entropy == pytest.approx(once.cross_entropy, abs=0.05)
    assert leaking.weight["vote"] + leaking.weight["trees"] > 0.5
    assert honest.weight["vote"] + honest.weight["trees"] < 0.5


def test_a_fit_of_copies_estimates_other_priors_with_groups(short_cross_fit):
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(60, 5)), rng.integers(0, 3, 60)
    copied, labels, groups = np.repeat(X, 3, axis=0), np.repeat(label, 3), np.repeat(np.arange(60), 3)
    plain, grouped = (
        SinglePositiveClassifier(epochs=2, random_state=0).fit(copied, labels, groups=each) for each in (None, groups)
    )
    assert np.abs(plain.class_prior_ - grouped.class_prior_).max() > 0.01


# folds, votes, frequencies


@pytest.mark.parametrize("seed", range(5))
def test_folds_hold_whole_groups(seed):
    groups = np.random.default_rng(seed).integers(0, 12, 100)
    folds = make_folds(100, 5, seed, torch.tensor(groups))
    assert sorted(torch.cat(folds).tolist()) == list(range(100))
    assert kept_whole(groups, folds)
    assert max(map(len, folds)) - min(map(len, folds)) <= Counter(groups.tolist()).most_common(1)[0][1]


def test_folds_of_odd_groups():
    with pytest.raises(ValueError, match="groups must hold at least two different values"):
        make_folds(20, 5, 0, torch.zeros(20, dtype=torch.long))
    giant = torch.cat([torch.zeros(90, dtype=torch.long), torch.arange(1, 11)])
    folds = make_folds(100, 5, 0, giant)
    assert sorted(map(len, folds)) == [2, 2, 3, 3, 90]
    assert len(make_folds(20, 5, 0, torch.arange(20) % 3)) == 3, "no more folds than groups"
    alone = make_folds(103, 5, 0, torch.arange(103))
    assert sorted(map(len, alone)) == [20, 20, 21, 21, 21]


def test_a_vote_without_neighbours_of_other_groups_is_nothing():
    """All rows near or far are of the own group: no weights, no NaN, also in the mixture."""
    rows, target = torch.randn(12, 3), torch.eye(3)[torch.arange(12) % 3]
    groups = torch.zeros(12, dtype=torch.long)
    settings = dataclasses.replace(SHORT, n_neighbours=4)
    assert _vote(rows, target, settings, 0, groups, Watch()).tolist() == [[0.0] * 3] * 12
    groups[9:] = 1  # three of another group
    vote = _vote(rows, target, settings, 0, groups, Watch())
    torch.testing.assert_close(vote.sum(1), torch.ones(12))
    for row in range(9):
        near = torch.cosine_similarity(rows[row], rows[9:]).mul(settings.temperature).softmax(0)
        torch.testing.assert_close(vote[row], near @ target[9:])
    fit = cross_fit(torch.randn(60, 4), torch.eye(3)[torch.arange(60) % 3], 0, SHORT, groups=torch.arange(60) // 55)
    assert torch.isfinite(fit.probability).all()
    torch.testing.assert_close(fit.probability.sum(1), torch.ones(60))


def test_the_frequency_of_a_label_is_that_of_other_groups():
    target, groups = torch.eye(3)[[0, 0, 1, 2, 1]], torch.tensor([0, 0, 1, 1, 2])
    expected = [[0, 2 / 3, 1 / 3]] * 2 + [[2 / 3, 1 / 3, 0]] * 2 + [[1 / 2, 1 / 4, 1 / 4]]
    torch.testing.assert_close(_frequency(target, groups), torch.tensor(expected))
    torch.testing.assert_close(_frequency(target, torch.arange(5)), _frequency(target))
    assert _frequency(target, torch.zeros(5, dtype=torch.long)).tolist() == [[0.0] * 3] * 5


# held out to choose the number of epochs


def task_of(groups, n=100, unlabelled=0):
    X, observed = torch.zeros(n, 2), np.eye(2, dtype=np.uint8)[np.arange(n) % 2]
    observed[:unlabelled] = 0
    data = TrainingData(DenseRows(X), groups=None if groups is None else np.asarray(groups, np.int64))
    return make_task(data, observed, make_method("an"), Plan(epochs=2, device="cpu"))


@pytest.mark.parametrize("seed", range(5))
def test_rows_held_out_are_whole_groups(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 25, 100)
    order = rng.permutation(np.arange(10, 100))
    chosen, rest = loop._hold_out(order, 18, task_of(groups, unlabelled=10))
    assert kept_whole(groups, [chosen, rest])
    assert set(chosen) <= set(order), "rows with a label"
    assert not set(chosen) & set(rest)
    assert 0 < len(chosen) <= 18
    assert len(rest) >= 72


def test_a_giant_group_is_learnt_from_and_not_held_out():
    groups = np.r_[np.zeros(80, int), np.arange(1, 21)]
    for seed in range(5):
        chosen, rest = loop._hold_out(np.random.default_rng(seed).permutation(100), 20, task_of(groups))
        assert set(range(80)) <= set(rest)
        assert len(chosen) == 20
    two = np.r_[np.zeros(60, int), np.ones(40, int)]
    chosen, rest = loop._hold_out(np.arange(100), 20, task_of(two))
    assert (chosen.tolist(), rest.tolist()) == (list(range(60, 100)), list(range(60))), "the smaller one, if none fits"


def test_rows_that_are_groups_by_themselves_are_held_out_as_without_groups():
    order = np.random.default_rng(0).permutation(100)
    for first, second in zip(
        loop._hold_out(order, 20, task_of(None)), loop._hold_out(order, 20, task_of(np.arange(100))), strict=True
    ):
        np.testing.assert_array_equal(first, second)


def test_the_search_sees_whole_groups(monkeypatch):
    seen = {}
    real = loop.train

    def note(task, **options):
        if task.validation is not None:
            seen["inside"], seen["outside"] = task.samples.data[:, 0], task.validation.samples.data[:, 0]
        return real(task, **options)

    monkeypatch.setattr(loop, "train", note)
    groups = np.repeat(np.arange(20), 5)
    X = np.column_stack([groups, np.random.default_rng(0).normal(size=100)])
    SinglePositiveClassifier("an", epochs=2, random_state=0, scale="none").fit(X, np.arange(100) % 2, groups=groups)
    assert not set(seen["inside"].tolist()) & set(seen["outside"].tolist())
    assert len(seen["outside"]) == 20


def test_one_group_alone():
    """Nothing can be held apart: the fit takes all epochs, and a cross-fit says what is wrong."""
    X, y, one = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2, np.zeros(60)
    model = SinglePositiveClassifier("an", epochs=2, random_state=0).fit(X, y, groups=one)
    assert not model.history_.search
    with pytest.raises(ValueError, match="groups must hold at least two different values"):
        SinglePositiveClassifier(epochs=2, random_state=0).fit(X, y, groups=one)


# splits


@pytest.mark.parametrize("seed", range(5))
def test_splits_hold_whole_groups(seed):
    groups = np.random.default_rng(seed).integers(0, 40, 200)
    split = train_val_test_split(np.zeros(200), seed, groups=groups)
    assert kept_whole(groups, split)
    assert sorted(np.concatenate(split)) == list(range(200))
    largest = Counter(groups.tolist()).most_common(1)[0][1]
    assert all(abs(len(part) - size) <= largest for part, size in zip(split, (160, 20, 20), strict=True))


def test_splits_of_odd_groups():
    one = train_val_test_split(np.zeros(20), 0, groups=np.zeros(20))
    assert [len(part) for part in one] == [20, 0, 0]
    giant = train_val_test_split(np.zeros(100), 0, groups=np.r_[np.zeros(70), np.arange(1, 31)])
    assert set(range(70)) <= set(giant.train)
    assert [len(part) for part in giant] == [80, 10, 10]
    without_val = train_val_test_split(np.zeros(100), 0, (0.8, 0.0, 0.2), groups=np.arange(100) // 4)
    assert [len(part) for part in without_val] == [80, 0, 20]


def test_rows_that_are_groups_by_themselves_are_split_as_without_groups_in_distribution():
    """Each row is as often in each part; sizes are the same."""
    count = np.zeros((3, 40))
    for seed in range(400):
        split = train_val_test_split(np.zeros(40), seed, groups=np.arange(40))
        assert [len(part) for part in split] == [32, 4, 4]
        for k, part in enumerate(split):
            count[k, part] += 1
    expected = 400 * np.array([0.8, 0.1, 0.1])
    assert np.abs(count / expected[:, None] - 1).max() < 0.6
    assert (np.abs(count - expected[:, None]) < 5 * np.sqrt(expected[:, None])).all()


# reading


def test_any_values_are_groups():
    for groups in (["b", "a", "b"], np.array([2.5, 1.0, 2.5]), np.array(["b", "a", "b"], object), [(1), (2), (1)]):
        assert read_groups(groups, 3).tolist() == [0, 1, 0]
    import pandas as pd

    assert read_groups(pd.Series(["b", "a", "b"], index=[7, 8, 9]), 3).tolist() == [0, 1, 0]
    assert read_groups(pd.Series(["x", None, "x", np.nan], dtype="string"), 4).tolist() == [0, 1, 0, 2]
    assert read_groups([np.nan, 3.0, np.nan], 3).tolist() == [1, 0, 2], "rows without a group are alone"
    for wrong in (["a"], np.zeros((3, 2)), "abc"):
        with pytest.raises(ValueError, match="groups must hold one value per row of X, 3 in all"):
            read_groups(wrong, 3)


def test_the_names_of_groups_do_not_matter(short_cross_fit):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 3
    numbers = np.arange(40) // 4
    names = np.array([f"patient {9 - k}" for k in numbers])
    first, second = (
        SinglePositiveClassifier(epochs=2, random_state=0).fit(X, y, groups=each) for each in (numbers, names)
    )
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
