"""What a model predicts that takes unknown labels for absent, beside one that does not."""

import matplotlib.pyplot as plt
import numpy as np

from onepos import SinglePositiveClassifier, draw_single_positive, load_dataset

scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(1200)), scenes.take(range(4800, 6000))
observed = draw_single_positive(train.Y, random_state=0)
fig, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
edges = np.linspace(0, 1, 11)
counts = {}
for method, color in (("an", "tab:orange"), ("crisp-plus", "tab:blue")):
    model = SinglePositiveClassifier(method, random_state=0).fit(train.X, observed)
    probability = model.predict_proba(test.X)
    bins = np.digitize(probability.ravel(), edges[1:-1])
    share = [test.Y.ravel()[bins == k].mean() if (bins == k).sum() > 20 else np.nan for k in range(10)]
    centre = [probability.ravel()[bins == k].mean() if (bins == k).sum() > 20 else np.nan for k in range(10)]
    axes[0].plot(centre, share, "o-", color=color, label=method)
    counts[method] = (probability > 0.5).sum(1).mean()
axes[0].plot([0, 1], [0, 1], color="gray", ls=":", label="right")
axes[0].set(
    xlabel="predicted probability",
    ylabel="share of labels that are there",
    title="Do probabilities mean what they say?",
)
axes[0].legend()
counts["in truth"] = test.Y.sum(1).mean()
bars = axes[1].bar(list(counts), list(counts.values()), color=["tab:orange", "tab:blue", "gray"])
axes[1].bar_label(bars, fmt="%.2f")
axes[1].set(ylabel="labels per image", title="Labels above one half")
