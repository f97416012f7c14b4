"""What one label per row hides: eight images, their digits, and the one that was written down."""

import matplotlib.pyplot as plt
import numpy as np

from onepos import draw_single_positive, load_dataset

scenes = load_dataset("digit-scenes").take(range(2000))
observed = draw_single_positive(scenes.Y, random_state=0)
names, rows = scenes.label_names, slice(0, 10)

fig, axes = plt.subplots(1, 3, figsize=(10, 4), layout="constrained", width_ratios=[1, 1, 1.15])
for ax, matrix, title in zip(axes, (scenes.Y, observed), ("What is true", "What was written down"), strict=False):
    ax.imshow(matrix[rows], cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    ax.set(title=title, xticks=range(10), yticks=range(10), ylabel="image")
    ax.set_xticklabels(names, rotation=60, ha="right")
order = scenes.Y.mean(0).argsort()
y = np.arange(10)
axes[2].barh(y, scenes.Y.mean(0)[order], color="tab:blue", alpha=0.35, label="true share")
axes[2].barh(y, observed.mean(0)[order], height=0.4, color="tab:blue", label="share written down")
axes[2].set(
    yticks=y,
    yticklabels=np.array(names)[order],
    title=f"All {len(scenes.Y)} images",
    xlabel="share of images with the digit",
)
axes[2].legend(loc="lower right")
