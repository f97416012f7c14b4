import numpy as np
import pytest
import torch
from PIL import Image

from onepos.bench.image_sets import with_published_protocol
from onepos.datasets import digit_scenes
from onepos.datasets.scenes import as_images
from onepos.images import (
    ImageFiles,
    ImageTensors,
    PackedImages,
    find_broken,
    make_views,
    pack_images,
    read_image,
)
from onepos.images.networks import IMAGENET, UNIT
from onepos.images.readers import ImageDataset
from onepos.protocol import cole_split, draw_single_positive


@pytest.fixture
def files(tmp_path):
    """Eleven different images of different shapes."""
    rng = np.random.default_rng(0)
    paths = []
    for k in range(11):
        paths.append(tmp_path / f"sub{k % 2}" / f"{k}.jpg")
        paths[-1].parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (9 + k, 20, 3), dtype=np.uint8)).save(paths[-1])
    return paths


def expected_rows(files, size=8):
    pixels = np.stack([read_image(path, size) for path in files])
    return pixels, (
        torch.tensor(pixels).permute(0, 3, 1, 2) / 255 - torch.tensor(IMAGENET.mean).view(3, 1, 1)
    ) / torch.tensor(IMAGENET.deviation).view(3, 1, 1)


def collect(samples, order, batch_size=3, n_views=2, seed=5):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return [(index, views, torch.rand(1)) for index, views in samples.batches(order, batch_size, n_views)]


def assert_same(left, right):
    assert len(left) == len(right)
    for (index, views, number), (other_index, other_views, other_number) in zip(left, right, strict=True):
        assert torch.equal(index, other_index)
        assert torch.equal(number, other_number)  # the numbers left for the loop are the same, too
        for view, other in zip(views, other_views, strict=True):
            assert torch.equal(view, other)


def test_rows_are_the_images_normalized(files):
    pixels, rows = expected_rows(files)
    index = torch.tensor([3, 0, 10, 3])
    for samples in (ImageFiles(files, 8), ImageTensors(pixels)):
        assert len(samples) == 11
        assert samples.n_features == 192
        torch.testing.assert_close(samples.rows(index), rows[index])


def test_all_kinds_give_the_same_batches_with_any_number_of_workers(files, tmp_path):
    order = torch.tensor([4, 1, 0, 7, 7, 10, 2, 9])
    alone = collect(ImageFiles(files, 8, workers=0), order)
    assert [len(index) for index, _, _ in alone] == [3, 3, 2]
    assert torch.equal(torch.cat([index for index, _, _ in alone]), order)
    assert_same(collect(ImageFiles(files, 8, workers=1), order), alone)
    assert_same(collect(ImageFiles(files, 8, workers=2), order), alone)
    assert_same(collect(pack_images(ImageFiles(files, 8, workers=0), tmp_path / "packed"), order), alone)
    assert_same(collect(ImageTensors(expected_rows(files)[0]), order), alone)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_batches_made_on_another_stream_are_the_same(files, tmp_path):
    order, there = torch.arange(11).repeat(20), torch.device("cuda")
    alone = collect(ImageFiles(files, 8, workers=0), order)
    packed = pack_images(ImageFiles(files, 8, workers=0), tmp_path / "packed")
    for samples in (ImageFiles(files, 8, workers=2), packed, packed.load()):
        found = []
        for index, views, number in collect(samples.to(there), order.to(there)):
            assert index.device.type == "cuda"
            found.append((index.cpu(), tuple(view.cpu() for view in views), number))
        for (index, views, number), (other, expected, same) in zip(found, alone, strict=True):
            assert torch.equal(index, other)
            assert torch.equal(number, same)
            for view, of_cpu in zip(views, expected, strict=True):
                torch.testing.assert_close(view, of_cpu, atol=1e-4, rtol=1e-4)


def test_views_of_a_batch_are_made_from_its_pixels(files):
    ((_, views, _),) = collect(ImageFiles(files, 8, workers=0), torch.arange(4), 4)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        expected = make_views(torch.tensor(expected_rows(files)[0][:4]), 2, IMAGENET, torch.default_generator)
    assert all(torch.equal(view, other) for view, other in zip(views, expected, strict=True))
    ((_, (plain,), _),) = collect(ImageFiles(files, 8, workers=0), torch.arange(4), 4, n_views=0)
    torch.testing.assert_close(plain, expected_rows(files)[1][:4])


def test_many_rows_go_through_the_workers(files, monkeypatch):
    monkeypatch.setattr("onepos.images.samples._PASS", 2)
    torch.testing.assert_close(ImageFiles(files, 8, workers=2).rows(torch.arange(11)), expected_rows(files)[1])


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_stops_with_its_path(files, workers):
    files[6].write_bytes(b"broken")
    samples = ImageFiles(files, 8, workers=workers)
    with pytest.raises(ValueError, match=r"row 6: .*sub0/6\.jpg is not: .*Or pass on_error='skip'"):
        list(samples.batches(torch.arange(11), 2, 1))
    files[6].unlink()
    with pytest.raises(ValueError, match=r"row 6: there is no image .*sub0/6\.jpg"):
        samples.rows(torch.tensor([6]))


@pytest.mark.parametrize("workers", [0, 2])
def test_on_request_it_is_skipped_and_listed(files, workers):
    files[6].write_bytes(b"broken")
    files[7].unlink()
    samples = ImageFiles(files, 8, workers=workers, on_error="skip")
    moved = samples.to(torch.device("cpu"))
    found = list(moved.batches(torch.arange(11), 2, 1))
    assert torch.cat([index for index, _ in found]).tolist() == [0, 1, 2, 3, 4, 5, 8, 9, 10]  # the batch (6, 7) is gone
    assert [len(views[0]) for _, views in found] == [2, 2, 2, 2, 1]
    assert sorted(samples.skipped) == [6, 7]
    assert str(files[6]) in samples.skipped[6]
    rows = samples.rows(torch.tensor([5, 6]))
    assert rows[1].abs().max() < 0.02  # a row is owed: the mean color
    assert rows[0].abs().max() > 0.5


def test_freed_memory_is_given_back_now_and_then(files, monkeypatch):
    calls = []
    monkeypatch.setattr("onepos.images.samples._give_back_freed", lambda: calls.append(1))
    monkeypatch.setattr("onepos.images.samples._TRIM_EVERY", 4 * 192)  # bytes of four images
    list(ImageFiles(files, 8, workers=0).batches(torch.arange(11), 2, 1))
    assert len(calls) == 2  # after eight of eleven images


def test_find_broken(files):
    files[2].write_bytes(files[2].read_bytes()[:-60])
    assert list(find_broken(files, workers=0)) == [2]


def test_packed_images_are_decoded_once(files, tmp_path, monkeypatch):
    source = ImageFiles(files, 8, workers=0)
    done = []
    packed = pack_images(source, tmp_path / "packed", on_batch=done.append)
    assert done == [11]
    assert packed.nbytes == 0
    torch.testing.assert_close(packed.rows(torch.arange(11)), source.rows(torch.arange(11)))
    loaded = packed.load()
    assert type(loaded) is ImageTensors
    assert loaded.nbytes == 11 * 192
    assert torch.equal(loaded.rows(torch.arange(11)), packed.rows(torch.arange(11)))

    def forbidden(*_):
        raise AssertionError("decoded again")

    monkeypatch.setattr("onepos.images.samples.read_image", forbidden)
    again = pack_images(source, tmp_path / "packed", on_batch=done.append)
    assert again.path == packed.path
    assert again.fingerprint() == packed.fingerprint()
    assert len(done) == 1


def test_a_changed_image_or_size_is_packed_anew(files, tmp_path):
    first = pack_images(ImageFiles(files, 8, workers=0), tmp_path / "packed")
    before = first.data.clone()
    assert pack_images(ImageFiles(files, 4, workers=0), tmp_path / "packed").path != first.path
    Image.new("RGB", (8, 8), "red").save(files[0], quality=100)
    second = pack_images(ImageFiles(files, 8, workers=0), tmp_path / "packed")
    assert second.path != first.path
    assert torch.equal(first.data, before)
    assert second.data[0, 0, 0].tolist() == pytest.approx([255, 0, 0], abs=3)


def test_packing_remembers_what_was_skipped(files, tmp_path):
    files[3].write_bytes(b"broken")
    for _ in range(2):
        packed = pack_images(ImageFiles(files, 8, workers=0, on_error="skip"), tmp_path / "packed")
        assert list(packed.skipped) == [3]
        assert torch.cat([index for index, _ in packed.batches(torch.arange(5), 2, 1)]).tolist() == [0, 1, 2, 4]
    with pytest.raises(ValueError, match=r"row 3: .*3\.jpg is not"):
        pack_images(ImageFiles(files, 8, workers=0), tmp_path / "packed")
    with pytest.raises(ValueError, match=r"row 3: .*3\.jpg is not"):
        pack_images(ImageFiles(files, 8, workers=0), tmp_path / "other")
    assert not list((tmp_path / "other").iterdir())  # nothing half-written


def test_packing_needs_room(files, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 100})())
    with pytest.raises(OSError, match=r"need 0\.0 GiB; .* has 0\.0 GiB left\. Give another folder"):
        pack_images(ImageFiles(files, 8, workers=0), tmp_path / "packed")


def test_fingerprints_know_the_data_not_the_place(files, tmp_path):
    base = ImageFiles(files, 8)
    moved = tmp_path / "moved"
    copies = []
    for path in files:
        copies.append(moved / path.relative_to(tmp_path))
        copies[-1].parent.mkdir(parents=True, exist_ok=True)
        copies[-1].write_bytes(path.read_bytes())
    assert ImageFiles(copies, 8).fingerprint() == base.fingerprint()
    others = [
        ImageFiles(files, 9),
        ImageFiles(files[::-1], 8),
        ImageFiles(files, 8, normalization=UNIT),
        ImageFiles(files[:-1], 8),
    ]
    copies[0].write_bytes(b"changed")
    others.append(ImageFiles(copies, 8))
    assert len({samples.fingerprint() for samples in (base, *others)}) == 6
    pixels = expected_rows(files)[0]
    first = ImageTensors(pixels).fingerprint()
    assert ImageTensors(pixels.copy()).fingerprint() == first
    pixels[5, 1, 1, 1] ^= 1
    assert ImageTensors(pixels).fingerprint() != first


def test_wrong_arguments(files):
    with pytest.raises(ValueError, match="on_error must be 'raise' or 'skip'; got 'ignore'"):
        ImageFiles(files, 8, on_error="ignore")
    for data in (np.zeros((2, 3, 8, 8), np.uint8), np.zeros((2, 8, 8, 3), np.float32)):
        with pytest.raises(ValueError, match=r"data must be uint8 of shape \(n, size, size, 3\)"):
            ImageTensors(data)


def test_the_sets_are_samples(files, tmp_path):
    """All that the loop needs is there: lengths, offers, a probe, memory, a copy on a device."""
    packed = pack_images(ImageFiles(files, 8, workers=0), tmp_path / "packed")
    for samples in (packed, packed.load(), ImageFiles(files, 8)):
        moved = samples.to(torch.device("cpu"))
        assert type(moved) is type(samples)
        assert len(moved) == 11
        assert samples.offers == {"maps", "views"}
        assert samples.probe().shape == (2, *samples.rows(torch.tensor([0])).shape[1:])
        assert samples.nbytes >= 0
        assert moved.fingerprint() == samples.fingerprint()
    assert isinstance(packed.to(torch.device("meta")), PackedImages)


def test_digit_scenes_as_images():
    scenes = digit_scenes(20)
    images = as_images(scenes, enlarge=2)
    assert images.shape == (20, 32, 32, 3)
    assert images.dtype == np.uint8
    np.testing.assert_allclose(images[:, ::2, 1::2, 1].reshape(20, -1) / 255, scenes.X, atol=0.51 / 255)
    assert ImageTensors(images, UNIT).rows(torch.arange(2)).shape == (2, 3, 32, 32)
    with pytest.raises(ValueError, match="the rows must be grey images"):
        as_images(type(scenes)("flat", scenes.X, scenes.Y, scenes.label_names))


def test_the_published_protocol():
    Y = np.random.default_rng(0).integers(0, 2, (30, 4)).astype(np.uint8)
    Y[7] = 0
    splits = {"train": np.arange(5, 25), "test": np.r_[0:5, 25:30]}
    data = ImageDataset("x", "", tuple(map(str, range(30))), Y, tuple("abcd"), splits)
    ready = with_published_protocol(data)
    assert ready.splits["train"].tolist() == (5 + cole_split(20).train).tolist()
    assert ready.splits["val"].tolist() == (5 + cole_split(20).val).tolist()
    assert ready.splits["test"].tolist() == splits["test"].tolist()
    np.testing.assert_array_equal(ready.observed[5:25], draw_single_positive(Y[5:25], 1200, how="cole"))
    np.testing.assert_array_equal(
        ready.observed[splits["test"]], draw_single_positive(Y[splits["test"]], 1200, how="cole")
    )
    assert ready.observed[7].sum() == 0
    with pytest.raises(ValueError, match="divides the parts train and test; x has train, val, test"):
        with_published_protocol(ready)
