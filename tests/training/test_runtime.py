"""Where work runs: threads by its size, and precision by the device."""

import threading

import pytest
import torch
from torch import nn

from onepos import SinglePositiveClassifier
from onepos.training import runtime
from onepos.training.runtime import count_weights, fitting_threads, narrow, place, widen

CPU = torch.device("cpu")
SMALL, LARGE = 1e6, 1e9


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
class TestThreads:
    def test_by_the_size_of_the_work(self):
        for size, expected in ((SMALL, 1), (LARGE, 2)):
            with fitting_threads(size, CPU):
                assert torch.get_num_threads() == expected
            assert torch.get_num_threads() == 2

    def test_never_more_than_the_caller_has(self):
        torch.set_num_threads(1)
        with fitting_threads(LARGE, CPU):
            assert torch.get_num_threads() == 1
        with fitting_threads(SMALL, CPU):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1

    def test_an_accelerator_changes_nothing(self):
        with fitting_threads(SMALL, torch.device("meta")):
            assert torch.get_num_threads() == 2

    def test_restored_after_an_error_and_from_within(self):
        def work():
            with fitting_threads(SMALL, CPU):
                with fitting_threads(SMALL, CPU):
                    pass
                assert torch.get_num_threads() == 1, "an inner context leaves the outer one as it was"
                raise KeyError

        with pytest.raises(KeyError):
            work()
        assert torch.get_num_threads() == 2

    def test_python_threads_side_by_side(self):
        """The second begins while the first is inside and ends after it; each must find the caller's number again."""
        inside, done, found = threading.Event(), threading.Event(), {}

        def first():
            with fitting_threads(SMALL, CPU):
                inside.set()
                done.wait(10)
            found["first"] = torch.get_num_threads()

        worker = threading.Thread(target=first)
        worker.start()
        inside.wait(10)
        with fitting_threads(SMALL, CPU):
            assert torch.get_num_threads() == 1
            done.set()
            worker.join(10)
        assert found == {"first": 2}
        assert torch.get_num_threads() == 2

    def test_fit_and_predict(self, toy, monkeypatch):
        X, _, observed = toy
        seen = []

        class Watching(nn.Linear):
            def forward(self, rows):
                seen.append(torch.get_num_threads())
                return super().forward(rows)

        def threads(call):
            seen.clear()
            call()
            return set(seen)

        model = SinglePositiveClassifier("an", network=Watching(8, 3), epochs=1, device="cpu")
        during = []
        model.fit(X, observed, on_epoch=lambda *_: during.append(torch.get_num_threads()))
        assert during == [1]
        assert threads(lambda: model.predict(X)) == {1}
        monkeypatch.setattr(runtime, "_ONE_THREAD", 10)
        assert threads(lambda: model.predict(X)) == {2}
        model.fit(X, observed, on_epoch=lambda *_: during.append(torch.get_num_threads()))
        assert during == [1, 2]


def test_weights_are_those_of_matrix_products():
    module = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    module.register_buffer("table", torch.zeros(4, 2))
    module.register_buffer("index", torch.zeros(4, 2, dtype=torch.int64))
    assert count_weights(module) == 3 * 5 + 5 * 2 + 4 * 2


def test_double_and_back():
    module = nn.Linear(2, 3)
    module.register_buffer("stored", torch.ones(2).half())
    module.register_buffer("exact", torch.full((1,), 1 / 3, dtype=torch.float64))
    module.register_buffer("number", torch.ones(2, dtype=torch.int64))
    weight = module.weight.detach().clone()
    assert widen(module) is module
    assert torch.equal(module.weight, weight.double())
    assert module.exact.item() == torch.tensor(1 / 3).item()
    dtypes = {name: narrow(tensor).dtype for name, tensor in module.state_dict().items()}
    assert dtypes == {
        "weight": torch.float32,
        "bias": torch.float32,
        "stored": torch.float16,
        "exact": torch.float32,
        "number": torch.int64,
    }


def test_place_moves_only_what_is_elsewhere():
    module = widen(nn.Linear(2, 3))
    assert place(module, CPU) == torch.float64
    pointer = module.weight.data_ptr()
    place(module, CPU)
    assert module.weight.data_ptr() == pointer
    assert place(module, torch.device("meta")) == torch.float64
    assert module.weight.device.type == "meta"
