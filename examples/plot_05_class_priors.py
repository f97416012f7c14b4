"""
How common is each label really?
================================

Only one label of each row was written down, so counting gives shares that are too low. ``estimate_priors`` estimates
the true shares, with intervals,
and a little extra knowledge helps a lot.
"""

# %%
# Count, and estimate
# -------------------
# First every row gets, for each label, the probability that this label was written down; the models that compute it
# have not seen the label of that row. From these probabilities follows how many labels the rows have.
import matplotlib.pyplot as plt
import numpy as np

from onepos import draw_single_positive, estimate_priors, held_out_probabilities, load_dataset

scenes = load_dataset("digit-scenes").take(range(1500))
observed = draw_single_positive(scenes.Y, random_state=0)
probability = held_out_probabilities(scenes.X, observed, random_state=0).probability

alone = estimate_priors(probability, observed, estimator="bracket")

# %%
# Say what you know
# -----------------
# The *proportions* of the shares follow from the data. Their common *scale*, the number of labels per row, is the
# hard part. Two kinds of knowledge fix it: the mean number of labels per row, or all labels of fifty rows that were
# drawn at random.
rows = np.random.default_rng(0).choice(len(scenes.Y), 50, replace=False)
estimates = {
    "one label per row, nothing else": alone,
    "mean number of labels known": estimate_priors(
        probability, observed, estimator="bracket", cardinality=scenes.Y.sum(1).mean()
    ),
    "all labels of 50 rows known": estimate_priors(probability, observed, estimator="bracket", labelled=scenes.Y[rows]),
}
truth = scenes.Y.mean(0)
for name, found in estimates.items():
    inside = ((found.lower <= truth) & (truth <= found.upper)).sum()
    error = np.abs(found.prior - truth).sum() / truth.sum()
    print(
        f"{name:34} {found.cardinality:.2f} labels per row, error {error:.2f}, {inside} of 10 intervals hold the truth"
    )
print(f"{'in truth':34} {truth.sum():.2f} labels per row")

# %%
# The three estimates
# -------------------
order = truth.argsort()
fig, axes = plt.subplots(1, 3, figsize=(10, 3.8), sharex=True, sharey=True, layout="constrained")
for ax, (name, found) in zip(axes, estimates.items()):
    y = np.arange(10)
    ax.hlines(y, found.lower[order], found.upper[order], lw=5, alpha=0.35, label="90 % interval")
    ax.plot(found.prior[order], y, "o", label="estimate")
    ax.plot(truth[order], y, "|", color="black", ms=14, mew=2, label="truth")
    ax.plot(observed.mean(0)[order], y, "x", color="gray", label="share observed")
    ax.set(yticks=y, yticklabels=np.array(scenes.label_names)[order], title=name, xlabel="share of rows with the label")
axes[0].legend(loc="lower right")
plt.show()
