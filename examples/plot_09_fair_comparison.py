"""
Compare methods fairly
======================

Is one method better than another, or was it luck? Give all methods the same rows and the same observed labels; give
each its default settings, or an equal number of settings to choose from; repeat with other draws; and show two
references: ``an``, which takes unknown labels for absent, and ``full``, which is the same with all labels known.
"""

# %%
# Same rows, same draws
# ---------------------
# In each trial other labels are drawn. Here every method has its default settings. The test rows are used once per
# fit, to score it.
import matplotlib.pyplot as plt
import numpy as np

from onepos import SinglePositiveClassifier, draw_single_positive, evaluate, load_dataset

scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(1200)), scenes.take(scenes.splits["test"])
METHODS = ["an", "wan", "crisp-plus", "full"]
scores = {method: [] for method in METHODS}
for trial in range(2):
    observed = draw_single_positive(train.Y, random_state=trial)
    for method in METHODS:
        model = SinglePositiveClassifier("an" if method == "full" else method, positives="any", random_state=trial)
        model.set_params(early_stopping=False).fit(train.X, train.Y if method == "full" else observed)
        found = evaluate(test.Y, model.predict_proba(test.X), names=["average_precision"])
        scores[method].append(found["average_precision"])

# %%
# Differences, trial by trial
# ---------------------------
# A mean alone misleads: the draws differ more than the methods do. So each method is compared with ``an`` on the same
# draw.
for method in METHODS:
    gain = np.array(scores[method]) - np.array(scores["an"])
    spread = f"{gain.min():+.3f} to {gain.max():+.3f}"
    print(f"{method:11} {np.mean(scores[method]):.3f}   beside an: {gain.mean():+.3f} ({spread})")

fig, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
for k, method in enumerate(METHODS):
    ax.plot(scores[method], [k] * 2, "o", color="tab:blue", alpha=0.6)
    ax.plot(np.mean(scores[method]), k, "|", ms=18, mew=2, color="black")
ax.axvline(np.mean(scores["an"]), color="gray", ls=":")
ax.axvline(np.mean(scores["full"]), color="gray", ls=":")
ax.set(
    yticks=range(len(METHODS)),
    yticklabels=METHODS,
    xlabel="average precision on test rows; a dot is a draw, the bar the mean",
)
plt.show()

# %%
# One data set and two draws do not settle anything. ``onepos bench run`` does this with many data sets, an equal
# number of settings for every method, statistical tests and a report: :doc:`/docs/howto/fair-comparison`.
