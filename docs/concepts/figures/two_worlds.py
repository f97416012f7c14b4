"""Two different truths behind the same data, and how a few fully labelled rows decide between them."""

import matplotlib.pyplot as plt
import numpy as np

from onepos import draw_single_positive, estimate_priors, held_out_probabilities, load_dataset

fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=[1, 1.2])
groups = ["always both", "one of the two"]
x = np.arange(2)
axes[0].bar(x - 0.2, [1.0, 0.5], 0.35, label="share of images with a cat")
axes[0].bar(x + 0.2, [0.5, 0.5], 0.35, label='share tagged "cat"')
axes[0].set(xticks=x, xticklabels=groups, title='Cats and dogs, tagged "cat" or "dog"', ylim=(0, 1.3))
axes[0].legend(loc="upper right")

scenes = load_dataset("digit-scenes").take(range(1000))
observed = draw_single_positive(scenes.Y, random_state=0)
probability = held_out_probabilities(scenes.X, observed, random_state=0).probability
rows = np.random.default_rng(0).permutation(len(scenes.Y))
known = [0, 10, 25, 50, 200]
for k, n_rows in enumerate(known):
    full = {"labelled": scenes.Y[rows[:n_rows]]} if n_rows else {}
    found = estimate_priors(probability, observed, estimator="bracket", **full)
    axes[1].plot([k, k], found.cardinality_interval, lw=6, alpha=0.35, color="tab:blue")
    axes[1].plot(k, found.cardinality, "o", color="tab:blue")
axes[1].axhline(scenes.Y.sum(1).mean(), color="black", ls=":", label="truth")
axes[1].set(xticks=range(5), xticklabels=known, xlabel="random rows of which all labels are known", ylim=(0, None))
axes[1].set(ylabel="labels per row, 90 % interval", title="A few full rows settle the number of labels")
axes[1].legend()
