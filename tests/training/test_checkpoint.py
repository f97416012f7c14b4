"""What is prepared before a training is kept beside its checkpoint, part by part, and taken up again."""

import hashlib
import io

import numpy as np
import pytest
import torch

from onepos import CRISPPlus, SinglePositiveClassifier
from onepos.methods import crossfit
from onepos.training.checkpoint import CheckpointParts, part_of, remove_checkpoint, save_checkpoint

PARTS = ("linear", "layered", "trees", "vote")
CPU = torch.device("cpu")


def fit(toy, file=None, *, random_state=0, **options):
    X, _, observed = toy
    model = SinglePositiveClassifier(CRISPPlus(cardinality=1.6), epochs=3, random_state=random_state)
    return model.fit(X, observed, checkpoint=file, **options)


@pytest.fixture
def counted(monkeypatch, short_cross_fit):
    """Which predictions are made, in order; a name put into `stop_at` raises KeyboardInterrupt before it is made."""
    made, stop_at = [], set()

    def watch(function):
        real = getattr(crossfit, function)

        def call(*arguments):
            name = {"predict_by_trees": "trees", "_vote": "vote"}.get(function)
            name = name or ("layered" if arguments[3].hidden else "linear")
            if name in stop_at:
                raise KeyboardInterrupt
            made.append(name)
            return real(*arguments)

        monkeypatch.setattr(crossfit, function, call)

    for function in ("predict_by_networks", "predict_by_trees", "_vote"):
        watch(function)
    return made, stop_at


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_parts_are_written_and_read_again(toy, tmp_path, counted):
    made, _ = counted
    file = tmp_path / "c"
    plain = fit(toy).predict_proba(toy[0])
    made.clear()
    first = fit(toy, file).predict_proba(toy[0])
    assert made == list(PARTS)
    assert names_in(tmp_path) == sorted(["c", *(f"c.part-{name}" for name in PARTS)])
    made.clear()
    file.unlink()  # of the training itself nothing is left
    again = fit(toy, file).predict_proba(toy[0])
    assert made == []
    np.testing.assert_array_equal(first, plain)
    np.testing.assert_array_equal(again, plain)


@pytest.mark.parametrize("stopped_at", PARTS)
def test_a_preparation_that_was_stopped_goes_on(stopped_at, toy, tmp_path, counted):
    made, stop_at = counted
    plain = fit(toy).predict_proba(toy[0])
    made.clear()
    stop_at.add(stopped_at)
    with pytest.raises(KeyboardInterrupt):
        fit(toy, tmp_path / "c")
    done = PARTS[: PARTS.index(stopped_at)]
    assert names_in(tmp_path) == sorted(f"c.part-{name}" for name in done)
    stop_at.clear()
    resumed = fit(toy, tmp_path / "c").predict_proba(toy[0])
    assert made == list(PARTS), "each once, in two fits"
    np.testing.assert_array_equal(resumed, plain)


def test_a_training_that_was_stopped_does_not_prepare_again(toy, tmp_path, counted):
    made, _ = counted
    plain = fit(toy).predict_proba(toy[0])

    def stop(epoch, _):
        if epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(toy, tmp_path / "c", on_epoch=stop)
    made.clear()
    np.testing.assert_array_equal(fit(toy, tmp_path / "c").predict_proba(toy[0]), plain)
    assert made == []


@pytest.mark.parametrize("damage", ["flipped bit", "cut off", "empty"])
@pytest.mark.parametrize("name", ["linear", "vote"])
def test_a_damaged_part_is_refused_in_one_sentence(name, damage, toy, tmp_path, counted):
    fit(toy, tmp_path / "c")
    part = part_of(tmp_path / "c", name)
    content = bytearray(part.read_bytes())
    if damage == "flipped bit":
        content[len(content) // 2] ^= 4
    else:
        del content[len(content) // 2 if damage == "cut off" else 0 :]
    part.write_bytes(content)
    sentence = rf"c\.part-{name} must be a checkpoint of onepos; it can not be read or is damaged\. Delete it to start"
    with pytest.raises(ValueError, match=sentence) as caught:
        fit(toy, tmp_path / "c")
    assert "\n" not in str(caught.value)
    assert part.read_bytes() == content
    part.unlink()
    fit(toy, tmp_path / "c")


def test_parts_of_other_data_or_another_seed_are_refused(toy, tmp_path, counted):
    X, Y, observed = toy
    file = tmp_path / "c"
    fit(toy, file)
    file.unlink()
    moved = X.copy()
    moved[5, 3] += 1
    other_label = observed.copy()
    other_label[3] = np.roll(other_label[3], 1)
    sentence = r"c\.part-linear must be a checkpoint of this training; it belongs to other data"
    for data in ((moved, Y, observed), (X, Y, other_label)):
        with pytest.raises(ValueError, match=sentence):
            fit(data, file)
    with pytest.raises(ValueError, match=sentence):
        fit(toy, file, random_state=1)


def test_all_files_of_a_checkpoint_are_removed_and_no_others(toy, tmp_path, counted):
    file = tmp_path / "c"
    others = ["b", "c.part", "c2", "c2.part-linear", "cc.part-linear", "xc", "xc.part-linear", "notes.txt"]
    for name in others:
        (tmp_path / name).write_text(name)
    fit(toy, file)
    remove_checkpoint(file)
    assert names_in(tmp_path) == sorted(others)
    remove_checkpoint(file)  # nothing is left to remove


def test_names_with_signs_of_a_pattern(tmp_path):
    """[ab]* is a name here."""
    file = tmp_path / "c[ab]*"
    parts = CheckpointParts(file, "mine", CPU)
    parts.save("linear", torch.ones(2))
    (tmp_path / "ca.part-linear").write_text("another's")
    remove_checkpoint(file)
    assert names_in(tmp_path) == ["ca.part-linear"]


def test_the_search_of_the_length_is_removed_with_the_rest(toy, tmp_path, short_cross_fit):
    """Its own checkpoint lies beside, and the parts of a method that prepares itself in both trainings."""
    X, _, observed = toy
    model = SinglePositiveClassifier("crisp", epochs=7, random_state=0)
    model.fit(X, observed, checkpoint=tmp_path / "c")
    assert {"c", "c.part-search", "c.part-linear", "c.part-search.part-linear"} <= set(names_in(tmp_path))
    remove_checkpoint(tmp_path / "c")
    assert names_in(tmp_path) == []


def test_a_tensor_comes_back_as_it_was(tmp_path):
    parts = CheckpointParts(tmp_path / "c", "mine", CPU)
    assert parts.load("linear") is None
    for tensor in (torch.rand(3, 4), torch.rand(2, 2, dtype=torch.float64), torch.zeros(0, 5)):
        parts.save("linear", tensor)
        found = parts.load("linear")
        assert found.dtype == tensor.dtype
        assert torch.equal(found, tensor)
    with pytest.raises(ValueError, match="must be a checkpoint of this training"):
        CheckpointParts(tmp_path / "c", "another's", CPU).load("linear")
    save_checkpoint(tmp_path / "c", "mine", {"epoch": 3})
    assert torch.equal(parts.load("linear"), found), "the training has a file of its own"


def test_without_a_checkpoint_nothing_is_written(toy, tmp_path, counted, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fit(toy)
    assert names_in(tmp_path) == []


def test_a_training_without_a_checkpoint_does_not_write_to_that_of_another(toy, tmp_path, short_cross_fit):
    """Both hold the same `shared`."""
    from onepos.methods.base import Shared
    from onepos.training.loop import train
    from onepos.training.plan import Plan
    from onepos.training.samples import as_samples
    from onepos.training.task import TrainingData, make_task

    X, _, observed = toy
    shared = Shared()
    data = TrainingData(as_samples(X), shared=shared)

    def task(seed):
        return make_task(data, observed, CRISPPlus(cardinality=1.6), Plan(epochs=1, device="cpu", seed=seed))

    train(task(0), checkpoint=tmp_path / "c")
    remove_checkpoint(tmp_path / "c")
    train(task(1))
    assert names_in(tmp_path) == []
    assert shared.disk is None


def test_a_damaged_checkpoint_is_refused_before_any_work(toy, tmp_path, counted):
    X, _, observed = toy
    (tmp_path / "ck").write_bytes(b"damaged")
    with pytest.raises(ValueError, match="must be a checkpoint of onepos"):
        SinglePositiveClassifier(random_state=0).fit(X, observed, checkpoint=tmp_path / "ck")
    assert [path.name for path in tmp_path.iterdir()] == ["ck"]


@pytest.mark.parametrize(
    "wrong",
    [
        torch.rand(3, 5),
        torch.full((3, 4), torch.nan),
        -torch.rand(3, 4),
        torch.ones(3, 4, dtype=torch.int64),
        torch.rand(3, 4).to_sparse(),
        "text",
        None,
    ],
)
def test_a_part_of_another_form_is_refused(tmp_path, wrong):
    parts = CheckpointParts(tmp_path / "c", "mine", CPU)
    parts.save("linear", wrong)
    with pytest.raises(ValueError, match=r"c\.part-linear must (hold what was prepared|be a checkpoint of onepos)"):
        parts.load("linear", (3, 4))


# Somebody may make the checksum of a forged checkpoint anew.


def stopped(folder, **options):
    """A fit that was stopped after its second epoch, or that is taken up again."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(3, size=60)
    held_out = X[:20], np.eye(3)[y[:20]]
    model = SinglePositiveClassifier("an", epochs=4, hidden=(4,), random_state=0, early_stopping=False)
    return model.fit(X, y, held_out, checkpoint=folder / "fit.ckpt", **options)


def forge(path, change):
    """Change the content of a checkpoint and write it as `save_checkpoint` does."""
    head, _, rest = path.read_bytes().partition(b"\n")
    saved = torch.load(io.BytesIO(rest), weights_only=True)
    change(saved["content"])
    buffer = io.BytesIO()
    torch.save(saved, buffer)
    first = b" ".join([*head.split(b" ")[:-1], hashlib.sha256(buffer.getvalue()).hexdigest().encode()])
    path.write_bytes(first + b"\n" + buffer.getvalue())


def of_weight(content, name):
    """What the optimizer keeps of the first weight, which is a matrix."""
    return next(state for state in content["optimizer"]["state"].values() if state[name].ndim == 2)


def set_moment(name, make):
    def change(content):
        state = of_weight(content, "exp_avg")
        state[name] = make(state[name])

    return change


FORGED = {
    # One number for all: a fast optimizer wrote beyond it, which broke the memory of the process.
    "moments of shared memory and another type": set_moment("exp_avg", lambda each: torch.zeros(1).expand(2, 2)),
    "sparse moments": set_moment("exp_avg_sq", lambda each: each.to_sparse()),
    "turned moments": set_moment("exp_avg", lambda each: each.t().contiguous().t()),
    "negative squares": set_moment("exp_avg_sq", lambda each: -1 - each),
    "steps that are no number": set_moment("step", lambda each: torch.ones(2)),
    "moments that are missing": lambda content: of_weight(content, "exp_avg").pop("exp_avg"),
    "huge weights": lambda content: content["learner"]["backbone.0.weight"].fill_(1e30),
    "states of no epoch": lambda content: content["states"].update({7: next(iter(content["states"].values()))}),
    "states by name": lambda content: content["states"].update(x={}),
    "no states": lambda content: content.update(states=None),
    "no losses": lambda content: content["history"].update(loss="x"),
    "a loss that is none": lambda content: content["history"].update(loss=[None, 1.0]),
    "a score that is none": lambda content: content["history"].update(validation=[None, None]),
    "more scores than epochs": lambda content: content["history"].update(validation=[0.5] * 9),
    "the best of no epoch": lambda content: content["history"].update(best_epoch=10**6),
    "another entry": lambda content: content["history"].update(x=1),
    "a huge number": lambda content: content["history"].update(seconds=[10**400, 1]),
    "no history": lambda content: content.pop("history"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_checkpoint_is_refused_in_one_sentence(tmp_path, name):
    class Stop(Exception):
        pass

    def stop(epoch, history):
        if epoch == 1:
            raise Stop

    with pytest.raises(Stop):
        stopped(tmp_path, on_epoch=stop)
    forge(tmp_path / "fit.ckpt", FORGED[name])
    with pytest.raises(ValueError, match=r"fit\.ckpt.* Delete it to start afresh\.") as found:
        stopped(tmp_path)
    assert "\n" not in str(found.value)


def test_moments_that_share_one_place_are_given_a_place_each(tmp_path):
    """The shape is right, so it is taken up; the optimizer wrote beyond their memory."""

    class Stop(Exception):
        pass

    def stop(epoch, history):
        if epoch == 1:
            raise Stop

    with pytest.raises(Stop):
        stopped(tmp_path, on_epoch=stop)
    forge(tmp_path / "fit.ckpt", set_moment("exp_avg", lambda each: torch.zeros(1).expand(each.shape)))
    assert np.isfinite(stopped(tmp_path).history_.loss).all()
