"""
Write a method of one's own
===========================

A method is a class with one function, ``loss``. The library does the rest: it trains, saves, resumes, predicts and
compares.
"""

# %%
# An idea
# -------
# An unknown label is probably absent, but not surely. So its target is not 0 but a small number, larger for labels
# that are observed often. The class has two functions: ``setup`` counts the labels once, ``loss`` is called for each
# batch.
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from onepos import Method, SinglePositiveClassifier, draw_single_positive, evaluate, load_dataset


class SoftNegatives(Method):
    """The target of an unknown label is `strength` times the share of rows in which the label was observed."""

    def __init__(self, strength=0.5):
        super().__init__()
        self.strength = strength

    def setup(self, train):
        self.register_buffer("share", train.observed.float().mean(0))

    def loss(self, features, batch):
        target = torch.where(batch.observed > 0, 1.0, self.strength * self.share)
        return binary_cross_entropy_with_logits(self(features[0]), target)


# %%
# Use it like any other
# ---------------------
# An object takes the place of a name. The parameters of the constructor can be searched (``method__strength``), as
# scikit-learn does it.
scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(800)), scenes.take(scenes.splits["test"])
STRENGTHS = [0.0, 0.25, 0.5, 1.0, 2.0]


def run(method, draw):
    """Micro-F1 and average precision on the test rows, labels decided at one half."""
    observed = draw_single_positive(train.Y, random_state=draw)
    model = SinglePositiveClassifier(method, epochs=15, early_stopping=False, threshold=0.5, random_state=draw).fit(
        train.X, observed
    )
    found = evaluate(test.Y, model.predict_proba(test.X), names=["micro_f1", "average_precision"])
    return found["micro_f1"], found["average_precision"]


ours = np.array([[run(SoftNegatives(strength), draw) for draw in range(2)] for strength in STRENGTHS])
floor = np.array([run("an", draw) for draw in range(2)])

# %%
# Does it help?
# -------------
# With a strength of 0 the method is ``an``; the dotted line is ``an`` itself, so both must meet there. That is a good
# test of a new method.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for k, (ax, name) in enumerate(zip(axes, ("micro-F1 at one half", "average precision"))):
    ax.plot(STRENGTHS, ours[:, :, k], "o", color="tab:blue", alpha=0.4)
    ax.plot(STRENGTHS, ours[:, :, k].mean(1), color="tab:blue", label="SoftNegatives")
    ax.axhline(floor[:, k].mean(), color="gray", ls=":", label="an")
    ax.set(xlabel="strength", title=name)
axes[0].legend()
plt.show()

# %%
# To offer it by name on the command line and in studies, see :doc:`/docs/howto/add-method`.
