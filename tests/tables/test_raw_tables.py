"""The estimator on raw tables: `encoder_` is fitted with the model, used by predict and kept in the model folder."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from onepos import SinglePositiveClassifier, export_onnx
from onepos.tables import TableEncoder

N = 60


def make_table(n=N, seed=0):
    """Two labels that follow from each of the columns but for some noise; with gaps."""
    rng = np.random.default_rng(seed)
    is_cat = rng.random(n) < 0.5
    table = pd.DataFrame(
        {
            "weight": np.where(is_cat, 4.0, 20.0) + rng.normal(size=n),
            "coat": np.where(is_cat, "short", "long"),
            "born": pd.to_datetime("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D"),
            "note": [f"this {'purrs softly' if each else 'barks loudly'} at night" for each in is_cat],
        }
    )
    table.loc[::7, "weight"] = np.nan
    table.loc[::9, "coat"] = None
    return table, np.where(is_cat, "cat", "dog")


def fit(table, y, **options):
    return SinglePositiveClassifier("an", epochs=10, batch_size=8, early_stopping=False, random_state=0, **options).fit(
        table, y
    )


def test_a_raw_table_is_encoded_in_fit_and_in_predict():
    table, y = make_table()
    new, truth = make_table(seed=1)
    model = fit(table, y)
    assert isinstance(model.encoder_, TableEncoder)
    assert model.scaling_ is None
    assert model.feature_names_in_.tolist() == list(table.columns)
    assert model.n_features_in_ == 4
    assert np.mean(model.classes_[model.predict_proba(new).argmax(1)] == truth) > 0.9
    encoded = model.encoder_.transform(new)
    assert encoded.shape[1] == model.encoder_.n_outputs_ > 4


def test_it_is_the_model_of_the_encoded_matrix():
    table, y = make_table()
    encoder = TableEncoder().fit(table)
    by_hand = fit(encoder.transform(table), y, scale="none")
    np.testing.assert_allclose(
        fit(table, y).predict_proba(table), by_hand.predict_proba(encoder.transform(table)), atol=1e-6
    )


def test_numbers_without_gaps_are_not_encoded():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(N, 3)), columns=list("abc")).assign(flag=rng.random(N) < 0.5)
    y = np.where(X["a"] > 0, "cat", "dog")
    model, plain = fit(X, y), fit(X.to_numpy(float), y)
    assert model.encoder_ is None
    np.testing.assert_array_equal(model.predict_proba(X), plain.predict_proba(X.to_numpy(float)))
    X.loc[3, "b"] = np.nan
    assert fit(X, y).encoder_ is not None
    with pytest.raises(ValueError, match=r"NaN|finite|missing"):
        fit(X, y, tables="never")


def test_an_encoder_with_options_is_used_as_given_and_not_changed():
    table, y = make_table()
    given = TableEncoder(drop=["note", "coat"])
    model = fit(table, y, tables=given)
    assert model.encoder_ is not given
    assert not hasattr(given, "columns_")
    assert set(model.encoder_.left_out_) == {"note", "coat"}
    assert clone(model).get_params()["tables__drop"] == ["note", "coat"]
    again = clone(model).set_params(tables__drop=["note"])
    assert set(again.fit(table, y).encoder_.left_out_) == {"note"}
    assert given.drop == ["note", "coat"]


def test_a_second_fit_forgets_the_encoder():
    table, y = make_table()
    model = fit(table, y)
    numbers = table[["weight"]].fillna(0)
    assert model.fit(numbers, y).encoder_ is None
    assert model.predict_proba(numbers).shape == (N, 2)


def test_validation_rows_are_encoded_too():
    table, y = make_table()
    new, truth = make_table(seed=1)
    model = SinglePositiveClassifier("an", epochs=3, random_state=0).fit(table, y, validation=(new, truth))
    assert len(model.history_.validation) == 3


@pytest.mark.parametrize("tables", ["auto", TableEncoder(categorical=["coat"], max_text_features=50)])
def test_a_model_folder_keeps_the_encoder(tmp_path, tables):
    table, y = make_table()
    new, _ = make_table(seed=1)
    model = fit(table, y, tables=tables)
    model.save(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.json", "model.safetensors"]
    loaded = SinglePositiveClassifier.load(tmp_path)
    np.testing.assert_allclose(loaded.predict_proba(new), model.predict_proba(new), atol=1e-6)
    assert loaded.encoder_.describe() == model.encoder_.describe()
    assert type(loaded.tables) is type(tables)
    loaded.save(tmp_path / "again")
    again = SinglePositiveClassifier.load(tmp_path / "again")
    np.testing.assert_allclose(again.predict_proba(new), model.predict_proba(new), atol=1e-6)


def test_a_folder_from_before_encoders_still_loads(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(N, 3)), np.arange(N) % 2
    model = fit(X, y)
    model.save(tmp_path)
    facts = json.loads((tmp_path / "model.json").read_text())
    del facts["parameters"]["tables"]
    (tmp_path / "model.json").write_text(json.dumps(facts))
    loaded = SinglePositiveClassifier.load(tmp_path)
    assert loaded.encoder_ is None
    assert loaded.tables == "auto"
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_a_damaged_encoder_is_refused(tmp_path):
    table, y = make_table()
    fit(table, y).save(tmp_path)
    facts = json.loads((tmp_path / "model.json").read_text())
    facts["table_encoder"]["columns"][0]["deviation"] = 0
    (tmp_path / "model.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="stored table encoder must hold"):
        SinglePositiveClassifier.load(tmp_path)


def test_columns_that_do_not_fit_are_named():
    table, y = make_table()
    model = fit(table, y)
    with pytest.raises(ValueError, match="there is no column 'note'"):
        model.predict(table.drop(columns="note"))
    other = table.assign(weight="heavy", extra=1)
    with pytest.raises(ValueError, match=r"column 'weight' \(number\) holds 'heavy' in row 0"):
        model.predict(other)
    model.predict(table.assign(extra=1))
    assert model.encoder_.ignored_ == ("extra",)
    with pytest.raises(ValueError, match="table must be a DataFrame"):
        model.predict([[1.0, 2.0, 3.0, 4.0]])


def test_wrong_choice_of_tables():
    table, y = make_table()
    with pytest.raises(ValueError, match="tables must be 'auto', 'never' or a TableEncoder; got 'atuo'"):
        fit(table, y, tables="atuo")


@pytest.mark.parametrize("form", ["records", "columns", "arrow", "polars", "datasets"])
def test_every_form_of_a_table_gives_the_same_model(form):
    table, y = make_table()
    records = [
        {name: None if pd.isna(cell) else cell for name, cell in row.items()} for row in table.to_dict("records")
    ]
    if form == "arrow":
        other = pytest.importorskip("pyarrow").Table.from_pandas(table)
    elif form == "polars":
        other = pytest.importorskip("polars").DataFrame(records)
    elif form == "datasets":
        other = pytest.importorskip("datasets").Dataset.from_list(records)
    else:
        other = records if form == "records" else {name: table[name] for name in table}
    np.testing.assert_allclose(fit(other, y).predict_proba(other), fit(table, y).predict_proba(table), atol=1e-6)


def test_a_raw_table_can_not_become_an_onnx_graph(tmp_path):
    table, y = make_table()
    with pytest.raises(ValueError, match="fitted to a raw table"):
        export_onnx(fit(table, y), tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
