"""What a known negative does: its gradient by formula, no pseudo-label for it, a warning where it is not used."""

import warnings

import numpy as np
import pytest
import torch

from onepos import SinglePositiveClassifier
from onepos.methods import METHODS, crossfit, make_method
from onepos.methods.base import Batch, TrainView
from onepos.methods.crossfit import held_out_probabilities, without_negatives
from onepos.training.loop import train
from onepos.training.plan import Plan
from onepos.training.samples import DenseRows
from onepos.training.task import TrainingData, make_task

B, C, KAPPA = 12, 4, 1.7


@pytest.fixture
def case(random_case):
    """Logits, observed labels, and a known negative in every other row."""
    logits, observed, _ = random_case(0)
    no = torch.zeros_like(observed)
    for row in range(0, B, 2):
        no[row, (observed[row].argmax() + 1) % C] = 1
    return logits, observed, no


def make(name):
    method = make_method(name)
    return method.set_params(cardinality=KAPPA) if "cardinality" in method.privileged else method


def count_penalty(scores):
    """Derivative of ((mean row sum − κ)/c)² in each logit."""
    return 2 * (scores.sum(1).mean() - KAPPA) / C**2 / B * scores * (1 - scores)


# Of the methods whose loss is a sum over entries: the derivative at a known negative, of the scores f and the method.
SLOPES = {
    **dict.fromkeys(("an", "an-ls", "wan", "em", "em-apl", "gr", "ll-r", "ll-ct", "ll-cp"), lambda f, m: f / (B * C)),
    "epr": lambda f, m: f / (B * C) + count_penalty(f),
    "role": lambda f, m: ((f + f - m.label_logits.detach().sigmoid()) / (B * C) + count_penalty(f)) / 2,
}


@pytest.mark.parametrize("name", SLOPES)
def test_a_known_negative_is_pushed_down_as_a_sure_one(name, case, prepare, loss_of):
    """By −log(1 − f), whose derivative is f, and with nothing taken off for doubt."""
    logits, observed, no = case
    torch.manual_seed(0)
    method = prepare(make(name), observed, known_negative=no, epoch=3)
    logits = logits.requires_grad_()
    loss_of(method, logits, observed, known_negative=no).backward()
    f = logits.detach().sigmoid()
    expected = SLOPES[name](f, method)
    torch.testing.assert_close(logits.grad[no == 1], expected[no == 1].to(logits.grad))


@pytest.mark.parametrize("name", ["wan", "em", "em-apl", "gr", "ll-r", "ll-ct", "ll-cp"])
def test_where_nothing_is_unknown_they_are_plain_supervision(name, case, prepare, loss_of):
    logits, observed, _ = case
    method = prepare(make(name), observed, known_negative=1 - observed, epoch=3)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(logits, observed)
    torch.testing.assert_close(loss_of(method, logits, observed, known_negative=1 - observed), expected)


@pytest.mark.parametrize("name", sorted(SLOPES))
def test_an_array_of_no_negatives_is_none(name, case, prepare, loss_of):
    logits, observed, no = case
    losses = []
    for given in (None, torch.zeros_like(no)):
        torch.manual_seed(0)
        losses.append(loss_of(prepare(make(name), observed, known_negative=given), logits, observed, None, given))
    torch.testing.assert_close(*losses)


def test_label_smoothing_by_a_loop(case, prepare, loss_of):
    logits, observed, no = case
    total = 0.0
    for i in range(B):
        for j in range(C):
            f = torch.sigmoid(logits[i, j])
            target = 0.0 if no[i, j] else 0.9 if observed[i, j] else 0.1
            total = total - target * f.log() - (1 - target) * (1 - f).log()
    method = prepare(make("an-ls"), observed, known_negative=no)
    torch.testing.assert_close(loss_of(method, logits, observed, known_negative=no), total / (B * C))


def trained(name, epochs=6, **parameters):
    """A method after a training in which label 0 is known to be absent where features say it is there; rows, labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 6)).astype(np.float32)
    Y = (X[:, :C] > 0).astype(np.uint8)
    Y[np.arange(80), rng.integers(0, C, 80)] = 1
    observed = np.zeros_like(Y)
    observed[np.arange(80), [rng.choice(np.flatnonzero(row)) for row in Y]] = 1
    no = np.zeros_like(Y)
    no[:, 0] = Y[:, 0] & (1 - observed[:, 0])
    plan = Plan(epochs=epochs, batch_size=80, lr=0.02, device="cpu", seed=0)
    data = TrainingData(DenseRows(torch.tensor(X)))
    task = make_task(data, observed, make_method(name, **parameters), plan, hidden=(16,), known_negative=no)
    train(task)
    return task.learner.method, torch.tensor(X), torch.tensor(observed) == 1, torch.tensor(no) == 1


def test_em_apl_gives_no_pseudo_label():
    method, _, observed, no = trained("em-apl", proportion=1.0)
    assert method.pseudo.isnan()[no | observed].all()
    assert (~method.pseudo.isnan())[~(no | observed)].float().mean() > 0.5


@pytest.mark.parametrize("parameters", [{"theta": 0.01}, {"rule": "prior", "inverse_cardinality": 0.6}])
def test_mime_makes_it_no_positive_and_never_ignores_it(parameters):
    method, _, _, no = trained("mime", warmup=1, **parameters)
    assert not method.labels[no].any()
    assert not method.ignored[no].any()
    assert (method.labels | method.ignored)[~no].any()


def test_ll_cp_does_not_correct_it():
    method, _, _, no = trained("ll-cp", delta_rel=20.0)
    assert not method.labels[no].any()
    assert method.labels[~no].sum() > 80, "others were corrected"


def test_smile_holds_it_to_zero_with_full_weight():
    """The derivative of the classifier's loss there is f by one factor, and so is f − 1 at an observed label."""
    method, X, observed, no = trained("smile", p=0.1, mu=0.0)
    features = torch.randn(80, method.head.in_features)
    logits = []
    hook = method.register_forward_hook(lambda module, inputs, output: logits.append(output))
    batch = Batch((X,), observed.float(), torch.arange(80), known_negative=no.float())
    features.requires_grad_()
    loss = method.loss([features], batch)
    hook.remove()
    (slope,) = torch.autograd.grad(loss, logits)
    f = logits[0].detach().sigmoid()
    factor = (slope / f)[no]
    torch.testing.assert_close(factor, factor[0].expand_as(factor))
    torch.testing.assert_close((slope / (f - 1))[observed], factor[0].expand(int(observed.sum())))


def test_crisp_plus_targets(short_cross_fit):
    method = make_method("crisp-plus")
    rng = np.random.default_rng(1)
    X, observed, no = torch.randn(60, 5), torch.zeros(60, C), torch.zeros(60, C)
    observed[torch.arange(60), torch.tensor(rng.integers(0, C, 60))] = 1
    no[:20] = 1 - observed[:20]  # twenty rows of one label, fully reviewed
    no[20:25, 2] = 1 - observed[20:25, 2]
    no[0], observed[0] = 1, 0  # one without any
    view = TrainView(
        observed=observed, n_features=5, n_epochs=3, inputs=lambda: X, features=lambda *_: X,
        logits=lambda: torch.zeros(60, C), known_negative=no,
    )  # fmt: skip
    method.head = method.make_head(5, C)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method.setup(view)
    assert view.is_complete.tolist() == [True] * 20 + [False] * 40
    assert (method.target[no == 1] == 0).all()
    torch.testing.assert_close(method.target[:20], observed[:20])
    torch.testing.assert_close(method.target[20:].sum(1), torch.ones(40))


def test_complete_rows():
    def complete(observed, no):
        rows = torch.tensor(observed)
        nothing = dict.fromkeys(("inputs", "features", "logits"), lambda: rows)
        view = TrainView(rows, 2, 1, **nothing, known_negative=None if no is None else torch.tensor(no))
        return view.is_complete.tolist()

    assert complete([[1, 1], [1, 0]], None) == [False, False]
    assert complete([[1, 1], [1, 0], [1, 0]], [[0, 0], [0, 1], [0, 0]]) == [True, True, False]
    assert complete([[1], [0], [0]], [[0], [1], [0]]) == [False, True, False], "of one label, every positive is known"


def test_held_out_probabilities_at_a_known_negative():
    rng = np.random.default_rng(0)
    X, label = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    y = np.full((60, 3), np.nan)
    y[np.arange(60), label] = 1
    y[:10, 0] = np.where(label[:10] == 0, 1, 0)
    settings = crossfit.CrossFitSettings(trees=None)
    fit = held_out_probabilities(X, y, random_state=0, settings=settings)
    plain = held_out_probabilities(X, label, random_state=0, settings=settings)
    assert (fit.probability[np.nonzero(y == 0)] == 0).all()
    torch.testing.assert_close(fit.probability.sum(1), torch.ones(60))
    torch.testing.assert_close(fit.probability[10:], plain.probability[10:])
    three = torch.tensor([[0.5, 0.5, 0.0]] * 3)
    no = torch.tensor([[0, 0, 0], [1, 1, 0], [1, 1, 1]])
    assert without_negatives(three, no).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


UNUSED = [name for name in METHODS if not make_method(name).uses_negatives and not make_method(name).requires]


@pytest.mark.parametrize("name", [name for name in UNUSED if "full" not in name])
def test_fit_warns_where_they_are_not_used(name, short_cross_fit):
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.tile([[1.0, 0.0, np.nan], [np.nan, 1.0, 0.0]], (15, 1))
    model = SinglePositiveClassifier(name, epochs=5, random_state=0, positives="any", early_stopping=False)
    with pytest.warns(UserWarning, match=r"30 labels are known to be absent, and \w+ does not use that"):
        model.fit(X, y)


@pytest.mark.parametrize("name", ["an", "wan", "ll-r", "crisp-plus"])
def test_fit_does_not_warn_where_they_are_used(name, short_cross_fit):
    X, y = np.random.default_rng(0).normal(size=(30, 3)), np.tile([[1.0, 0.0, np.nan], [np.nan, 1.0, 0.0]], (15, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SinglePositiveClassifier(name, epochs=2, random_state=0, early_stopping=False).fit(X, y)
    assert not [each for each in caught if "known to be absent" in str(each.message)]
