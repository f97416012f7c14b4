"""The sorted probabilities of one label, and where each rule cuts."""

import matplotlib.pyplot as plt
import numpy as np

from onepos import SinglePositiveClassifier, draw_single_positive, load_dataset

scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(1500)), scenes.take(range(4800, 6000))
model = SinglePositiveClassifier(random_state=0).fit(train.X, draw_single_positive(train.Y, random_state=0))
probability = model.predict_proba(test.X)
label = scenes.label_names.index("one")
order = probability[:, label].argsort()[::-1]
values, true = probability[order, label], test.Y[order, label]
share = np.arange(1, len(order) + 1) / len(order)

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
ax.plot(share, values, label="probability")
ax.plot(share, np.cumsum(true) / np.arange(1, len(order) + 1), color="gray", label="share right of all rows up to here")
for rule, color in (("precision=0.9", "tab:green"), (0.5, "tab:red"), ("f1", "tab:orange"), ("prior", "tab:purple")):
    thresholds, _ = model.decision_curve_.choose(rule)
    cut = (values > thresholds[label]).mean()
    ax.axvline(cut, color=color, ls="--", label=f"cut by {rule}")
ax.axvline(true.mean(), color="black", lw=1, label="true share of the label")
ax.set(xlabel='share of the images, the most probable "one" first', ylabel="", xlim=(0, 1), ylim=(0, 1.02))
ax.legend(ncols=2, fontsize=9)
