"""Studies: what ships is what was promised, runs are stable and fair, and a wrong file gets a sentence."""

import dataclasses
import json
from collections import Counter, defaultdict

import pytest

from onepos.bench.study import Run
from onepos.bench.study_file import STUDIES, parse_stored, read_studies, read_study, write_study
from onepos.methods import METHODS, make_method

SMOKE = (STUDIES / "smoke.toml").read_text(encoding="utf-8")
SHIPPED = [path.stem for path in sorted(STUDIES.glob("*.toml"))]
TABULAR = [name for name in METHODS if not METHODS[name]().requires & {"maps", "views"}]
SHARED = ("network", "hidden", "lr", "weight_decay", "batch_size")

RUN = Run(
    dataset="yeast",
    method="crisp",
    parameters={"lam": 0.5, "warmup": 2},
    network="mlp",
    hidden=(256,),
    scaling="standard",
    bias_init="frequency",
    epochs=20,
    batch_size=32,
    lr=0.001,
    weight_decay=1e-05,
    threshold=0.5,
    select_metric="average_precision",
    select_labels="full",
    split_seed=1,
    draw_seed=2,
    seed=3,
    trial=4,
    configuration=5,
)


@pytest.fixture(scope="module")
def fair_runs():
    return read_study("fair").runs()


@pytest.fixture
def edit(tmp_path):
    """Reads the smoke study with some of its text replaced."""

    def read(*changes, **options):
        text = SMOKE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return read_study(path, **options)

    return read


def keys(runs):
    return {run.key() for run in runs}


# What a run is.


def test_a_run_survives_json():
    assert Run.from_json(json.loads(json.dumps(RUN.to_json()))) == RUN
    assert len({RUN, Run.from_json(RUN.to_json())}) == 1
    with pytest.raises(ValueError, match=r"a run must have the fields dataset, .*; it differs in lr, rate"):
        Run.from_json({**{k: v for k, v in RUN.to_json().items() if k != "lr"}, "rate": 1})


def test_the_key_of_a_run_is_for_ever():
    """Results on disk are found by it."""
    assert RUN.key() == "4d36bb6c82d1c076"


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Run) if field.name != "images"])
def test_the_key_tells_what_decides_the_result(field):
    value = getattr(RUN, field)
    other = {"parameters": {"lam": 0.5, "warmup": 3}, "hidden": (128,)}.get(field, f"not {value}")
    changed = dataclasses.replace(RUN, **{field: other})
    assert (changed.key() == RUN.key()) == (field in ("trial", "configuration"))
    assert dataclasses.replace(RUN, parameters={"warmup": 2, "lam": 0.5}).key() == RUN.key()


# What ships.


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_studies_hold_together(name):
    study = read_study(name)
    runs = study.runs()
    assert study == read_study(f"{name}.toml")
    assert len(keys(runs)) == len(runs), "no run twice"
    assert study.floor in study.methods
    assert "full labels" in METHODS[study.oracle]().requires
    for run in {json.dumps(dict(run.parameters), sort_keys=True) + run.method: run for run in runs}.values():
        make_method(
            run.method, **{key: 2.0 if value == "$cardinality" else value for key, value in run.parameters.items()}
        )


@pytest.mark.parametrize("name", SHIPPED)
def test_a_study_survives_its_file(name, tmp_path):
    study = dataclasses.replace(read_study(name), name='a "strange" name – ü\n')
    path = tmp_path / "copy.toml"
    path.write_text(write_study(study), encoding="utf-8")
    assert read_study(path) == study
    assert parse_stored(write_study(study)) == study


def test_a_stored_study_may_hold_names_that_are_gone():
    text = write_study(read_study("smoke")).replace("crisp", "crips").replace("lam", "lamb").replace("mlp-32", "new")
    study = parse_stored(text)
    assert study.methods == ("an", "crips", "full")
    assert study.method_space["crips"]["lamb"].entries == (0.0, 2.0)
    assert study.networks == ("linear", "new")
    with pytest.raises(ValueError, match=r"study\.toml: unknown key 'epoch'; did you mean 'epochs'\?"):
        parse_stored(text.replace("epochs", "epoch"))


def test_fair_is_what_was_promised(fair_runs):
    for dataset, (configurations, trials) in {
        **dict.fromkeys(["image", "scene", "yeast", "corel5k"], (16, 5)),
        **dict.fromkeys(["delicious", "mirflickr_tags"], (8, 3)),
    }.items():
        mine = Counter(run.method for run in fair_runs if run.dataset == dataset)
        assert mine == dict.fromkeys(TABULAR, configurations * trials)
    assert {(run.network, run.hidden) for run in fair_runs} == {("linear", ()), ("mlp", (256,))}
    assert {(run.scaling, run.bias_init, run.epochs) for run in fair_runs} == {("standard", "frequency", 20)}
    assert {run.threshold for run in fair_runs if run.method not in ("em", "em-apl")} == {0.5}
    assert {run.threshold for run in fair_runs if run.method in ("em", "em-apl")} == {0.75}


def test_recipes_are_left_out_where_the_study_says_so(edit):
    both = ('methods = ["an",', 'methods = ["epr", "an",')
    assert {dict(run.parameters).get("cardinality") for run in edit(both).runs() if run.method == "epr"} == {None}
    with_recipes = edit(both, ("recipes = false", "recipes = true"))
    assert {run.parameters["cardinality"] for run in with_recipes.runs() if run.method == "epr"} == {"$cardinality"}
    assert {run.parameters["warmup"] for run in with_recipes.runs() if run.method == "crisp"} == {1}


# Fair.


def test_all_methods_share_points_rows_and_seeds(fair_runs):
    met = defaultdict(set)
    for run in fair_runs:
        point = tuple(getattr(run, name) for name in SHARED)
        met[run.dataset, run.configuration, run.trial].add((point, run.split_seed, run.draw_seed, run.seed))
    assert {len(points) for points in met.values()} == {1}
    seeds = {name: {getattr(run, name) for run in fair_runs} for name in ("split_seed", "draw_seed", "seed")}
    assert [len(numbers) for numbers in seeds.values()] == [5, 5, 5]
    assert len(set.union(*seeds.values())) == 15


def test_networks_and_batch_sizes_are_balanced(fair_runs):
    for dataset, count in (("yeast", 4), ("delicious", 2)):
        first = [r for r in fair_runs if (r.dataset, r.method, r.trial) == (dataset, "gr", 0)]
        assert Counter((r.network, r.batch_size) for r in first) == Counter(
            {(network, size): count for network in ("linear", "mlp") for size in (32, 128)}
        )
        assert len({r.lr for r in first}) == len({r.parameters["q3"] for r in first}) == 4 * count


def test_variants_of_a_method_meet_the_same_points(fair_runs):
    first, *others = (
        [run.parameters for run in fair_runs if (run.dataset, run.method) == ("yeast", method)]
        for method in ("crisp", "crisp-3ep", "crisp-val")
    )
    assert all(other == first for other in others)
    assert len({run["lam"] for run in first}) == 16


def test_more_data_sets_and_methods_change_no_run(edit):
    before = edit()
    after = edit(('"digit-scenes", "yeast"', '"scene", "digit-scenes", "yeast"'), ('["an",', '["em-apl", "an",'))
    assert keys(before.runs()) < keys(after.runs())
    assert len(after.runs()) == 3 * 4 * 8
    less = edit(("[parameters.crisp]", "[budget.yeast]\ntrials = 1\n\n[parameters.crisp]"))
    assert keys(less.runs()) < keys(before.runs())
    assert Counter(run.dataset for run in less.runs()) == {"digit-scenes": 24, "yeast": 12}


def test_floor_and_oracle_are_always_run(edit):
    study = edit(('["an", "crisp", "full"]', '["crisp"]'))
    assert study.methods == ("crisp", "an", "full")


def test_fixed_means_the_first_trials(edit):
    new, fixed = edit(), edit(('split = "new"', 'split = "fixed"'), ('draw = "new"', 'draw = "fixed"'))
    assert keys(r for r in new.runs() if r.trial == 0) == keys(r for r in fixed.runs() if r.trial == 0)
    assert len({(r.split_seed, r.draw_seed) for r in fixed.runs()}) == 1
    assert len({r.seed for r in fixed.runs()}) == 2


def test_a_grid_over_a_methods_own_parameters_repeats_the_shared_points(edit):
    study = edit(
        ('sampler = "sobol"', 'sampler = "grid"'),
        ("configurations = 4\n", ""),
        ("lr = { log = [1e-3, 1e-2] }", "lr = { values = [1e-3, 1e-2] }"),
        ("weight_decay = { log = [1e-6, 1e-3] }", "weight_decay = { values = [0] }"),
        ("lam = { linear = [0.0, 2.0] }", 'prior = { values = ["estimate", 0.1, [0.1, 0.2]] }'),
        ('warmup = 1\nprior = "estimate"', "warmup = 1"),
    )
    points = defaultdict(dict)
    for run in study.runs():
        points[run.method][run.configuration] = tuple(getattr(run, name) for name in SHARED)
    assert len(points["an"]) == 8
    assert len(points["crisp"]) == 24
    assert all(points["crisp"][k] == points["an"][k % 8] for k in range(24))
    assert Counter(str(run.parameters["prior"]) for run in study.runs() if run.method == "crisp") == {
        "estimate": 32,
        "0.1": 32,
        "[0.1, 0.2]": 32,
    }


def test_numbers_are_of_the_methods_type(edit):
    """1 and 1.0 are the same run."""
    no_axis = ("lam = { linear = [0.0, 2.0] }", "")
    first, second = (edit(no_axis, ("warmup = 1", f"lam = {number}")) for number in ("1", "1.0"))
    assert keys(first.runs()) == keys(second.runs())


def test_the_order_in_a_file_and_empty_tables_mean_nothing(edit, tmp_path):
    axes = ["lam = { linear = [0.0, 2.0] }", "tau = { log = [0.001, 0.1] }"]
    first, second = (edit((axes[0], "\n".join(order))) for order in (axes, axes[::-1]))
    assert first.runs() == second.runs()
    assert edit(("[parameters.crisp]", "[parameters.an]\n[budget.yeast]\n[parameters.crisp]")) == read_study("smoke")


# A star, and traces.

STAR = [
    ('sampler = "sobol"', 'sampler = "star"'),
    ("configurations = 4\n", ""),
    ('networks = ["linear", "mlp-32"]', 'networks = ["linear"]'),
    ("{ log = [1e-3, 1e-2] }", "{ values = [0.01] }"),
    ("{ log = [1e-6, 1e-3] }", "{ values = [0.0] }"),
    ("[64, 128]", "[64]"),
    ("{ linear = [0.0, 2.0] }", "{ values = [0.0, 2.0] }\nwarmup = { values = [2] }"),
]


def test_a_star_varies_one_own_parameter_at_a_time(edit, tmp_path):
    study = edit(*STAR)
    runs = [run for run in study.runs() if (run.dataset, run.method, run.trial) == ("yeast", "crisp", 1)]
    centre = {"warmup": 1, "prior": "estimate"}
    wanted = [centre, centre | {"lam": 0.0}, centre | {"lam": 2.0}, centre | {"warmup": 2}]
    assert [dict(run.parameters) for run in runs] == wanted
    assert [run.configuration for run in runs] == [0, 1, 2, 3]
    assert study.star("crisp") == [{}, {"lam": 0.0}, {"lam": 2.0}, {"warmup": 2}]
    assert study.star("an") == [{}]
    assert len({run.key() for run in study.runs()}) == len(study.runs()) == 2 * 2 * (4 + 1 + 1)
    (tmp_path / "copy.toml").write_text(write_study(study), encoding="utf-8")
    assert read_study(tmp_path / "copy.toml") == study
    defaults = make_method("crisp").get_params()
    assert (
        parse_stored(write_study(study)).centre
        == study.centre
        == {"crisp": {name: defaults[name] for name in ("lam", "warmup")}}
    )
    assert study.centre_value("yeast", "crisp", "warmup") == 1, "as the study sets it"
    assert study.centre_value("yeast", "crisp", "lam") == defaults["lam"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        (
            "epochs = 4",
            "epochs = 4\nconfigurations = 8",
            "configurations must be left out with sampler = 'star'; got 8.",
        ),
        ('["linear"]', '["linear", "mlp-8"]', "networks must have one value with sampler = 'star'; it has 2."),
        ("[64]", "[32, 64]", "space.batch_size must have one value with sampler = 'star'; it has 2. A star varies the"),
        (
            "{ values = [0.01] }",
            "{ log = [1e-3, 1e-2] }",
            "the axis lr must have values with sampler = 'star'; it is log",
        ),
        (
            "{ values = [2] }",
            "{ values = [1, 2] }",
            "the axis warmup of crisp must have values beside that of the centre",
        ),
        (
            "[0.0, 2.0]",
            "[1.0, 2.0]",
            "the axis lam of crisp must have values beside that of the centre of the star; it",
        ),
    ],
)
def test_a_wrong_star_gets_a_sentence(edit, old, new, sentence):
    with pytest.raises(ValueError, match=r"mine\.toml: ") as caught:
        edit(*STAR, (old, new))
    assert sentence in str(caught.value)


def test_traces_are_off_unless_asked_for_and_change_no_run(edit):
    before = edit()
    assert (before.trace, before.shown_labels) == (False, {})
    after = edit(
        ("seed = 0", "seed = 0\ntrace = true"), ("[selection]", "[shown_labels]\nyeast = [2, 1]\n\n[selection]")
    )
    assert (after.trace, after.shown_labels) == (True, {"yeast": (2, 1)})
    assert after.runs() == before.runs()
    assert edit(("seed = 0", "seed = 0\ntrace = false")) == before


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("scene = [1]", "unknown key 'shown_labels.scene'; choose from digit-scenes, yeast"),
        ("yeast = 3", "shown_labels.yeast must be a list of labels, counted from 1; got 3."),
        ("yeast = [0]", "shown_labels.yeast must be a list of labels, counted from 1; got [0]."),
        ("yeast = []", "shown_labels.yeast must be a list of labels, counted from 1; got []."),
        ("yeast = [2, 2]", "shown_labels.yeast must be a list without repetition; got [2, 2]."),
    ],
)
def test_wrong_labels_to_show_get_a_sentence(edit, line, sentence):
    with pytest.raises(ValueError, match=r"mine\.toml: ") as caught:
        edit(("seed = 0", "seed = 0\ntrace = true"), ("[selection]", f"[shown_labels]\n{line}\n\n[selection]"))
    assert sentence in str(caught.value)


# Selection without full labels.


def test_another_selection():
    blind = read_study("smoke", labels="single-positive", metric="one_error")
    assert blind.name == "smoke-single-positive"
    assert {(r.select_metric, r.select_labels) for r in blind.runs()} == {("one_error", "single-positive")}
    assert not keys(blind.runs()) & keys(read_study("smoke").runs())
    assert read_study("smoke", labels="full") == read_study("smoke")
    with pytest.raises(
        ValueError, match=r"unknown name 'none' in selection\.labels; choose from full, single-positive"
    ):
        read_study("smoke", labels="none")


# Another seed.


def test_another_seed():
    fresh = read_study("smoke", seed=25)
    assert (fresh.name, fresh.seed) == ("smoke-seed-25", 25)
    assert not keys(fresh.runs()) & keys(read_study("smoke").runs())
    assert [run.draw_seed for run in fresh.runs()] != [run.draw_seed for run in read_study("smoke").runs()]
    assert read_study("smoke", seed=0) == read_study("smoke")
    assert read_study("smoke", labels="single-positive", seed=3).name == "smoke-single-positive-seed-3"


# Wrong files.


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("epochs = 4", "epoch = 4", "unknown key 'epoch'; did you mean 'epochs'?"),
        ("scaling =", "#", "scaling must be stated; it is missing. Nothing is assumed."),
        ("bias_init =", "#", "bias_init must be stated; it is missing. Nothing is assumed."),
        ("networks =", "#", "networks must be stated; it is missing. Nothing is assumed."),
        ("epochs = 4", "epochs = 4.0", "epochs must be a whole number of at least 1; got 4.0."),
        ("epochs = 4", "epochs = true", "epochs must be a whole number of at least 1; got True."),
        ("trials = 2", "trials = 0", "trials must be a whole number of at least 1; got 0."),
        ("seed = 0", "seed = -1", "seed must be a whole number of at least 0; got -1."),
        ("recipes = false", 'recipes = "no"', "recipes must be true or false; got 'no'."),
        ('name = "smoke"', "name = 3", "name must be a text in quotes; got 3."),
        ('"digit-scenes", "yeast"', "1", 'datasets must be a list of names, such as ["a", "b"]; got [1].'),
        ('"digit-scenes", "yeast"', '"yeast", "yeast"', "datasets must be a list without repetition; got"),
        ('["an", "crisp", "full"]', '["an", "crips"]', "unknown name 'crips' in methods; did you mean 'crisp'?"),
        ('["an", "crisp", "full"]', '"every"', "methods must be \"all\" or a list of names; got 'every'."),
        ('floor = "an"', 'floor = "crip"', "unknown name 'crip' in floor; did you mean 'crisp'?"),
        ('"standard"', '"zscore"', "unknown name 'zscore' in scaling; choose from standard, none."),
        ('"mlp-32"', '"mlq-32"', "only the network mlp has widths to state; got 'mlq-32'. Write mlq."),
        ('"linear"', '"liner"', "unknown name 'liner' in networks; did you mean 'linear'?"),
        (
            '"mlp-32"',
            '"mlp"',
            "the network mlp must state the widths of its hidden layers; it does not. Write mlp-256.",
        ),
        ('"mlp-32"', '"mlp-0"', "the widths of a network must be whole numbers of at least 1; got 'mlp-0'."),
        (
            "configurations = 4",
            "configurations = 6",
            "configurations must be a power of two with sampler = 'sobol'; got 6.",
        ),
        ("configurations = 4", "", "configurations must be stated with sampler = 'sobol'; it is missing."),
        ('"sobol"', '"grid"', "configurations must be left out with sampler = 'grid'; got 4."),
        ('"average_precision"', '"average"', "unknown name 'average' in selection.metric; did you mean 'coverage'?"),
        ("labels =", "label =", "unknown key 'selection.label'; did you mean 'labels'?"),
        ("[selection]", "[selection]\n[selection.deep]", "unknown key 'selection.deep'"),
        ('"*" = 0.5', "an = 0.5", "threshold.* must be stated; it is missing."),
        ('"*" = 0.5', '"*" = 1.5', "threshold.* must be a number from 0 to 1, or 'prior'; got 1.5."),
        ("lr = { log", "lr = { lag", "unknown key 'space.lr.lag'; did you mean 'log'?"),
        ("lr = { log = [1e-3, 1e-2] }", "lr = 1e-3", "space.lr must be one of {values = […]}, {log = [low, high]} and"),
        ("[1e-3, 1e-2]", "[1e-2, 1e-3]", "space.lr.log must be two numbers, the lower first; got [0.01, 0.001]."),
        ("[1e-3, 1e-2]", "[0, 1e-2]", "space.lr.log must be a list in which each entry is a positive number; got"),
        ("[1e-6, 1e-3]", "[0, 1e-3]", "space.weight_decay.log must be two positive numbers, the lower first; got"),
        ("[1e-6, 1e-3]", "[nan, 1]", "each entry is a number of at least 0; got [nan, 1]."),
        ("[64, 128]", "[64, 64]", "space.batch_size.values must be a list without repetition; got [64, 64]."),
        ("[64, 128]", "[64, 0.5]", "each entry is a whole number of at least 1; got [64, 0.5]."),
        ("[64, 128]", "[]", "each entry is a whole number of at least 1; got []."),
        ("values = [64", "linear = [64", "space.batch_size must be of the form {values = […]}; got"),
        (
            "space.parameters.crisp",
            "space.parameters.crips",
            "unknown key 'space.parameters.crips'; did you mean 'crisp'?",
        ),
        ("lam =", "lamb =", "unknown key 'space.parameters.crisp.lamb'; did you mean 'lam'?"),
        ("lam = { linear = [0.0, 2.0] }", "warmup = { linear = [1, 3] }", "An entry is a whole number."),
        ("[parameters.crisp]", "[parameters.an]", "unknown key 'parameters.an.warmup'; there is nothing to set here."),
        ("warmup = 1", "warmup = 1.5", "parameters.crisp.warmup must be a whole number; got 1.5."),
        ("warmup = 1", 'delta = "$count"', "parameters.crisp.delta must be a number; got '$count'."),
        (
            "warmup = 1",
            "lam = 1",
            "lam of crisp must be fixed or searched, not both; it stands in [parameters.crisp] and in",
        ),
        (
            '[parameters.crisp]\nwarmup = 1\nprior = "estimate"',
            "[parameters]\ncrisp = 3",
            "parameters.crisp must be a table; got 3.",
        ),
        ("[parameters.crisp]", "[budget.yest]\n#", "unknown key 'budget.yest'; did you mean 'yeast'?"),
        (
            "[parameters.crisp]\nwarmup",
            "[budget.yeast]\nepoch",
            "unknown key 'budget.yeast.epoch'; did you mean 'epochs'?",
        ),
        (
            '[parameters.crisp]\nwarmup = 1\nprior = "estimate"',
            "[budget.yeast]\nconfigurations = 3",
            "must be a power of two",
        ),
        ("seed = 0", 'seed = 0\ntrace = "yes"', "trace must be true or false; got 'yes'."),
        (
            "[selection]",
            "[shown_labels]\nyeast = [1]\n[selection]",
            "shown_labels must come with trace = true; it does",
        ),
    ],
)
def test_a_wrong_file_gets_a_sentence(edit, old, new, sentence):
    with pytest.raises(ValueError, match=r"mine\.toml: ") as caught:
        edit((old, new))
    assert sentence in str(caught.value)


def test_a_grid_needs_values(edit):
    with pytest.raises(ValueError, match="the axis lr must have values with sampler = 'grid'; it is log"):
        edit(('sampler = "sobol"', 'sampler = "grid"'), ("configurations = 4\n", ""))


def test_a_file_that_is_no_toml(edit, tmp_path):
    with pytest.raises(ValueError, match=r"mine.toml must be TOML in UTF-8; .*\(at line 4, column"):
        edit(('name = "smoke"', "name is smoke"))
    path = tmp_path / "latin.toml"
    path.write_bytes('name = "grün"'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.toml must be TOML in UTF-8"):
        read_study(path)


def test_a_file_that_is_not_there():
    with pytest.raises(
        FileNotFoundError, match=r"no study file fare.toml, and no study of that name; did you mean 'fair'\?"
    ):
        read_study("fare.toml")


def test_a_file_may_name_several_studies(tmp_path):
    assert read_studies("smoke") == ("smoke", {".": read_study("smoke")})
    (tmp_path / "mine.toml").write_text(SMOKE.replace('"smoke"', '"mine"'))
    (tmp_path / "both.toml").write_text('name = "both"\nstudies = ["mine", "smoke"]')
    name, studies = read_studies(tmp_path / "both.toml", labels="single-positive")
    assert name == "both"
    assert list(studies) == ["mine-single-positive", "smoke-single-positive"]
    assert studies["mine-single-positive"].runs() == studies["smoke-single-positive"].runs()
    _, studies = read_studies(tmp_path / "both.toml", seed=3)
    assert {name: study.seed for name, study in studies.items()} == {"mine-seed-3": 3, "smoke-seed-3": 3}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('name = "a"\nstudies = ["nonesuch"]', "there is no study file nonesuch"),
        ('studies = ["smoke"]', "name must be stated"),
        ('name = "a"\nstudies = []', "studies must be a list of names"),
        ('name = "a"\nstudies = ["smoke"]\nseed = 1', "unknown key 'seed'"),
    ],
)
def test_a_wrong_list_of_studies(tmp_path, text, said):
    (tmp_path / "wrong.toml").write_text(text)
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        read_studies(tmp_path / "wrong.toml")
