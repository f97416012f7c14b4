"""How Sphinx makes the site; ./docs/build runs it. The source folder is the root of the repository.

So a relative link between docs/, research/ and examples/ means the same on the site and in a checkout.
"""

import sys
from pathlib import Path

import onepos

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs" / "_extensions"))

project = "onepos"
author = "The onepos developers"
project_copyright = f"{author}, Apache-2.0"
version = release = onepos.__version__

root_doc = "docs/index"
include_patterns = ["docs/**", "research/*.md", "research/**/*.md", "CONTRIBUTING.md", "CHANGELOG.md"]
exclude_patterns = [
    ".*",
    "**/__pycache__",
    "docs/package.md",
    "docs/_*",
    "src",
    "tests",
    "dist",
    "docs/generated/**.ipynb",
]

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "onepos_site",
]

# Markdown pages
myst_enable_extensions = ["attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header", "config.cache"]  # made pages may skip a level of headings
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
html_math_renderer = "mathml"

# Reference: from the docstrings
autosummary_generate = True
autodoc_default_options = {
    "members": True,
    "inherited-members": "BaseEstimator,ClassifierMixin,TransformerMixin,Module,Method,object",
    "exclude-members": ",".join(  # what scikit-learn adds to every estimator
        ["get_metadata_routing", "get_params", "set_params", "set_output"]
        + [
            f"set_{name}_request"
            for name in ("fit", "score", "transform", "predict", "predict_proba", "decision_function")
        ]
    ),
}
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
default_role = "code"
templates_path = [str(ROOT / "docs" / "_templates")]
nitpicky = True
nitpick_ignore_regex = [  # other packages, and private types of signatures
    ("py:.*", r"(numpy|np|npt|torch|scipy|sp|pandas|pd|sklearn|os|pathlib|collections|PIL|abc)\b.*"),
    ("py:.*", r"onepos\.(methods\.base|methods\.reduction|images\.networks|labels|datasets|training)\..*"),
    ("py:class", r"Floats|Flags|FloatArray|onepos\.images\.features\.ImageInput"),
]

# Figures of the concept pages
plot_formats = [("png", 130)]
plot_html_show_formats = False
plot_html_show_source_link = False
plot_basedir = str(ROOT / "docs" / "concepts" / "figures")

# Gallery: examples/plot_*.py, run one after the other
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "docs/generated/gallery",
    "backreferences_dir": "docs/generated/backreferences",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(serve_onnx|make_tickets)\.py",
    "within_subsection_order": "FileNameSortKey",
    "doc_module": ("onepos",),
    "reference_url": {"onepos": None},
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "min_reported_time": 3600,
    "show_memory": False,
    "write_computation_times": False,
    "show_signature": False,
    "matplotlib_animations": False,
}

html_theme = "furo"
html_title = f"onepos {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
