"""
Embeddings with one label each
==============================

You have vectors from a text or image model, and one label per item. Save both in one file, train in seconds, and see
where the gain lies.
"""

# %%
# Made-up embeddings
# ------------------
# Each label has a direction in a space of 128 dimensions. An item is the sum of the directions of its labels, with
# noise, scaled to length one, as sentence encoders give them.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import LogisticRegression

from onepos import SinglePositiveClassifier, draw_single_positive, evaluate
from onepos.datasets import read_dataset
from onepos.metrics import per_label

LABELS = ["art", "film", "food", "health", "music", "science", "sport", "travel"]
rng = np.random.default_rng(0)
direction = rng.normal(size=(len(LABELS), 128))
Y = (rng.random((2500, len(LABELS))) < [0.1, 0.35, 0.25, 0.3, 0.4, 0.15, 0.3, 0.2]).astype(int)
Y[~Y.any(1), 4] = 1
X = Y @ direction + 1.5 * rng.normal(size=(2500, 128))
X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
train, test = slice(0, 1500), slice(1500, None)

observed = draw_single_positive(Y[train], random_state=0)
file = Path(tempfile.mkdtemp()) / "embeddings.npz"
np.savez(file, X=X[train], y=np.array(LABELS)[observed.argmax(1)])

# %%
# Fit
# ---
# ``read_dataset`` reads the file that ``onepos fit embeddings.npz`` would read.
items = read_dataset(file)
print(items)
model = SinglePositiveClassifier(random_state=0).fit(items.X, items.Y)
ours = model.predict_proba(X[test])

# %%
# Against logistic regression
# ---------------------------
# One logistic regression for each label, where every label that was not written down counts as absent, is what one
# would do without onepos.
usual = np.stack(
    [LogisticRegression(max_iter=1000).fit(X[train], column).predict_proba(X[test])[:, 1] for column in observed.T], 1
)
tables = {
    "logistic regression": per_label(Y[test], usual, 0.5, LABELS),
    "onepos": per_label(Y[test], ours, model.thresholds_, LABELS),
}
for name, scores, decisions in (("logistic regression", usual, usual > 0.5), ("onepos", ours, model.predict(X[test]))):
    found = evaluate(Y[test], scores, names=["map", "micro_f1"], decisions=decisions.astype(int))
    print(f"{name:20} mAP {found['map']:.3f}, micro-F1 {found['micro_f1']:.3f}")

# %%
# Both rank the items of a label well; the difference is in the decisions. Above one half only few labels remain where
# the unknown ones counted as absent.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
for ax, column, title in zip(
    axes, ("average_precision", "recall"), ("Order: average precision", "Decisions: share of true labels found")
):
    for k, (name, table) in enumerate(tables.items()):
        ax.barh(np.arange(len(LABELS)) + 0.38 * k, table[column], 0.36, label=name)
    ax.set(title=title, xlim=(0, 1.02), yticks=np.arange(len(LABELS)) + 0.19, yticklabels=LABELS)
axes[1].legend(loc="lower right")
plt.show()
