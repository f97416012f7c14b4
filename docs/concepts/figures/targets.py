"""How far the target of a row is from the truth, by the weight of the held-out prediction."""

import matplotlib.pyplot as plt
import numpy as np

from onepos import draw_single_positive, estimate_priors, held_out_probabilities, load_dataset

scenes = load_dataset("digit-scenes").take(range(1500))
observed = draw_single_positive(scenes.Y, random_state=0).astype(float)
predicted = held_out_probabilities(scenes.X, observed, random_state=0).probability.numpy()
truth = scenes.Y / scenes.Y.sum(1, keepdims=True)
alphas = np.linspace(0, 1, 41)
error = [((((1 - a) * observed + a * predicted) - truth) ** 2).sum(1).mean() for a in alphas]
cardinality = estimate_priors(predicted, observed, estimator="bracket").cardinality
chosen = min(1.0, (1 - 1 / cardinality) / ((observed - predicted) ** 2).sum(1).mean())

fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained", width_ratios=[1.3, 1])
row = int(scenes.Y.sum(1).argmax())
y = np.arange(10)
mixed = (1 - chosen) * observed + chosen * predicted
for k, (values, name, color) in enumerate(
    [
        (truth, "truth, spread evenly", "lightgray"),
        (observed, "observed label", "tab:orange"),
        (predicted, "held-out prediction", "tab:green"),
        (mixed, "target of CRISP+", "tab:blue"),
    ]
):
    axes[0].bar(y + 0.2 * (k - 1.5), values[row], 0.2, label=name, color=color)
axes[0].set(xticks=y, title="One image")
axes[0].set_xticklabels(scenes.label_names, rotation=45, ha="right")
axes[0].legend(fontsize=8)
axes[1].plot(alphas, error)
axes[1].axvline(chosen, color="tab:blue", ls=":", label="chosen without the truth")
axes[1].set(xlabel="weight of the held-out prediction", ylabel="squared error of the target", title="All images")
axes[1].legend()
