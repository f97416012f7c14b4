import numpy as np
import pytest
import torch

from onepos.methods.losses import nn_pu


def softplus(value):
    return np.log1p(np.exp(value))


def naive_nn_pu(logits, observed, prior):
    """The risk of Kiryo et al. (2017), Eq. (6), label by label and row by row."""
    risk = []
    for j in range(logits.shape[1]):
        shown = [i for i in range(len(logits)) if observed[i, j]]
        if not shown:
            risk.append(0.0)
            continue
        positive = prior[j] * np.mean([softplus(-logits[i, j]) for i in shown])
        subtract = prior[j] * np.mean([softplus(logits[i, j]) for i in shown])
        risk.append(positive + max(0.0, np.mean([softplus(g) for g in logits[:, j]]) - subtract))
    return np.array(risk)


def case(n_rows=8, n_labels=5, seed=0):
    """Each label but the last is shown in turn."""
    logits = np.random.default_rng(seed).normal(size=(n_rows, n_labels))
    return logits, np.eye(n_labels)[np.arange(n_rows) % (n_labels - 1)], np.linspace(0.2, 0.6, n_labels)


def test_nn_pu_in_a_loop():
    logits, observed, prior = case()
    logits[observed[:, 0] == 1, 0] = 6.0  # the negative part of the first label falls below 0
    logits[observed[:, 0] == 0, 0] = -6.0
    prior[0] = 0.9
    assert observed[:, -1].sum() == 0
    got = nn_pu(*map(torch.from_numpy, (logits, observed, prior)))
    np.testing.assert_allclose(got, naive_nn_pu(logits, observed, prior), rtol=1e-12)
    assert got[0].item() == pytest.approx(0.9 * softplus(-6.0))  # cut off
    assert got[-1] == 0  # not shown


def test_nn_pu_with_the_frequency_of_the_data_set_is_unbiased():
    """Small priors keep all batches above the cut; the mean over all batches is then the risk of all rows."""
    logits, observed, _ = case(n_rows=12)
    prior = observed.mean(0)
    whole = nn_pu(*map(torch.from_numpy, (logits, observed, prior)))
    batches = [torch.arange(k, k + 3) for k in range(0, 12, 3)]
    parts = [
        nn_pu(torch.from_numpy(logits)[rows], torch.from_numpy(observed)[rows], *[torch.from_numpy(prior)] * 2)
        for rows in batches
    ]
    assert any((observed[rows].sum(0) == 0).any() for rows in batches)
    seen = observed.sum(0) > 0
    np.testing.assert_allclose(torch.stack(parts).mean(0)[seen], whole[seen], rtol=1e-12)


def test_nn_pu_with_frequency_takes_a_batch_without_the_label_for_negative():
    logits = torch.tensor([[1.0], [-2.0]])
    risk = nn_pu(logits, torch.zeros(2, 1), torch.tensor([0.3]), torch.tensor([0.1]))
    assert risk.item() == pytest.approx((softplus(1.0) + softplus(-2.0)) / 2)


def test_nn_pu_of_positives_that_are_all_shown_is_cross_entropy():
    """π = ρ: every positive is shown, the subtraction leaves the loss of the negatives."""
    logits, observed, _ = case()
    got = nn_pu(*map(torch.from_numpy, (logits, observed, observed.mean(0))))
    wanted = np.where(observed == 1, softplus(-logits), softplus(logits)).mean(0)
    np.testing.assert_allclose(got[:-1], wanted[:-1], rtol=1e-12)
