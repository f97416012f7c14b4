"""Parts of the contract that are more than a name: the watch, mixtures of rows, and what is kept on disk."""

import itertools
import math

import pytest
import torch

from onepos.methods.base import Batch, Mixing, Shared, Watch


class TestWatch:
    @pytest.fixture
    def clock(self, monkeypatch):
        """A clock to be set: clock[0] is the time."""
        clock = [100.0]
        monkeypatch.setattr("onepos.methods.base.time.perf_counter", lambda: clock[0])
        return clock

    def test_share_of_the_time_that_is_spent(self, clock):
        assert Watch().share_spent(0.0) == 0
        watch = Watch(deadline=110.0)
        assert watch.share_spent(100.0) == 0
        clock[0] = 104.0
        assert watch.share_spent(100.0) == pytest.approx(0.4)
        clock[0] = 120.0
        assert watch.share_spent(100.0) == 1

    def test_a_part_has_its_share_of_the_time_that_is_left(self, clock):
        watch = Watch(deadline=110.0)
        half = watch.part(0.5)
        assert half.deadline == 105.0
        clock[0] = 104.0
        assert half.part(0.25).deadline == 104.25
        assert watch.part(0.5).deadline == 107.0
        assert watch.deadline == 110.0

    def test_late_is_after_the_deadline(self, clock):
        watch = Watch(deadline=110.0)
        assert not watch.is_late()
        clock[0] = 110.5
        assert watch.is_late()
        assert watch.part(0.5).deadline == 110.5, "of no time that is left there are no parts"

    def test_without_a_limit_nothing_is_ever_late(self, clock):
        clock[0] = 1e18
        watch = Watch()
        assert not watch.is_late()
        assert watch.part(0.1).deadline == math.inf
        watch.report(1, 2)  # nobody listens

    def test_reports_say_what_is_done(self):
        told = []
        watch = Watch(tell=lambda *report: told.append(report), deadline=math.inf)
        watch.report(0, 3)
        watch.named("counting").part(0.5).report(1, 3)
        assert told == [("preparing", 0, 3), ("counting", 1, 3)]


class TestMixing:
    @pytest.mark.parametrize("shape", [(6,), (6, 4), (6, 3, 2, 2)])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_apply_equals_a_loop(self, shape, dtype):
        torch.manual_seed(0)
        values, mixing = torch.randn(shape, dtype=dtype), Mixing.draw(6, torch.device("cpu"))
        mixed = mixing.apply(values)
        assert mixed.dtype == dtype
        for i in range(6):
            share, partner = mixing.share[i].item(), int(mixing.partner[i])
            torch.testing.assert_close(mixed[i], share * values[i] + (1 - share) * values[partner])

    def test_draws(self):
        """Partners are a permutation; shares lie between 0 and 1 and are uniform."""
        torch.manual_seed(0)
        partner, share = Mixing.draw(4000, torch.device("cpu"))
        assert sorted(partner.tolist()) == list(range(4000))
        assert ((share >= 0) & (share < 1)).all()
        for low in (0.1, 0.5, 0.9):
            assert abs((share < low).float().mean().item() - low) < 4 * math.sqrt(low * (1 - low) / 4000)
        torch.manual_seed(0)
        again = Mixing.draw(4000, torch.device("cpu"))
        assert torch.equal(partner, again.partner)
        assert torch.equal(share, again.share)

    def test_values_of_a_batch_that_was_not_mixed_stay(self):
        rows = torch.randn(3, 2)
        batch = Batch((rows,), torch.zeros(3, 4), torch.arange(3))
        assert batch.mix(rows) is rows
        mixing = Mixing(torch.tensor([2, 1, 0]), torch.tensor([0.25, 0.5, 1.0]))
        mixed = Batch((rows,), torch.zeros(3, 4), torch.arange(3), mixing).mix(rows)
        torch.testing.assert_close(mixed, torch.stack([0.25 * rows[0] + 0.75 * rows[2], rows[1], rows[2]]))


class Drawer:
    """Tensors by name, in place of files."""

    def __init__(self):
        self.held = {}

    def load(self, name, shape=None):
        return self.held.get(name)

    def save(self, name, tensor):
        self.held[name] = tensor


class TestShared:
    def test_kept_is_made_once_where_there_is_a_disk(self):
        shared, made = Shared(), itertools.count()
        shared.disk = Drawer()

        def make():
            return torch.tensor(next(made))

        assert [shared.kept(name, make).item() for name in ("a", "b", "a")] == [0, 1, 0]
        assert sorted(shared.disk.held) == ["a", "b"]

    def test_without_a_disk_it_is_made_anew(self):
        made = itertools.count()
        shared = Shared()
        assert [shared.kept("a", lambda: torch.tensor(next(made))).item() for _ in range(2)] == [0, 1]

    def test_what_was_cut_short_is_not_kept(self):
        """It serves this fit, and a later one with more time makes it whole."""
        shared = Shared()
        shared.disk = Drawer()
        late = Watch(deadline=-math.inf)
        assert shared.kept("a", lambda: torch.tensor(1), late.has_time).item() == 1
        assert shared.kept("a", lambda: torch.tensor(2), Watch().has_time).item() == 2
        assert shared.kept("a", lambda: torch.tensor(3)).item() == 2

    def test_what_could_not_be_made_is_not_kept(self):
        shared = Shared()
        shared.disk = Drawer()
        assert shared.kept("a", lambda: None) is None
        assert shared.disk.held == {}
        assert shared.kept("a", lambda: torch.tensor(7)).item() == 7

    def test_once_is_by_key(self):
        shared, made = Shared(), itertools.count()
        assert [shared.once(key, lambda: next(made)) for key in ("a", ("a", 1), "a")] == [0, 1, 0]
