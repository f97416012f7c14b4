"""
Complete a data set with 50 reviewed rows
=========================================

You do not want a model, you want the missing labels. ``complete_labels`` adds those of which it is sure enough. All
labels of 50 rows, drawn at random
and reviewed by a person, let it state how many of the added labels are right.
"""

# %%
# One label per row, and 50 rows with all labels
# ----------------------------------------------
# In ``known``, 1 is a label that is there, 0 one that is not, and NaN one that nobody looked at.
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from onepos import complete_labels, draw_single_positive, load_dataset

scenes = load_dataset("digit-scenes").take(range(2000))
known = draw_single_positive(scenes.Y, random_state=0).astype(float)
known[known == 0] = np.nan
reviewed = np.random.default_rng(0).choice(len(known), 50, replace=False)
known[reviewed] = scenes.Y[reviewed]

labels = pd.DataFrame(known, columns=scenes.label_names)
done = complete_labels(scenes.X, labels, min_precision=0.8, random_state=0)
print(done.summary.round(2).to_string())

# %%
# Is the stated precision right?
# ------------------------------
# Here the truth is known, so we can check. ``Completion.held_out`` holds the costly part, so that another precision
# takes no time.
hidden = np.isnan(known)
wanted = np.array([0.6, 0.7, 0.8, 0.9, 0.95])
reached, found = [], []
for precision in wanted:
    added = complete_labels(None, labels, min_precision=precision, held_out=done.held_out, random_state=0).added
    reached.append(scenes.Y[added].mean() if added.any() else np.nan)
    found.append((added & (scenes.Y == 1)).sum() / (hidden & (scenes.Y == 1)).sum())

# %%
# What it gives
# -------------
# Left: up to 0.8 about as many of the added labels are right as were wanted; beyond that few labels are added, and
# fewer of them are right than wanted. :doc:`/docs/complete` has the same for seven data sets.
#
# Right: a higher precision means fewer labels. Those that are left out are not lost: ``done.review()`` lists the
# items that a person should look at first, and ``onepos serve`` shows them on a page.
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
axes[0].plot([0.55, 1], [0.55, 1], color="gray", ls=":")
axes[0].plot(wanted, reached, "o-")
axes[0].set(xlabel="precision wanted", ylabel="share of the added labels that are right", title="Precision")
axes[1].plot(wanted, found, "o-", color="tab:green")
axes[1].set(xlabel="precision wanted", ylabel="share of the hidden labels found", ylim=(0, None), title="Labels found")
plt.show()

print(done.review(5).to_string())
