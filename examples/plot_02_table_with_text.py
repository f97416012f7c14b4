"""
A table with text: support tickets filed under one category
===========================================================

A help desk files each ticket under one category, though many are about two or three things. The table has a text, a
channel, a date and gaps. It goes
into ``fit`` as it is: onepos turns every column into numbers.
"""

# %%
# A made-up help desk
# -------------------
# Each ticket is about one to three subjects and holds a sentence for each. The desk writes down one of them. The
# table is made by :download:`make_tickets.py </examples/make_tickets.py>`, which lies beside this script.
import matplotlib.pyplot as plt
import numpy as np
from make_tickets import LABELS, make_tickets

from onepos import SinglePositiveClassifier

tickets, category, Y = make_tickets(1200)
tickets = tickets.drop(columns="id")
print(tickets.assign(category=category).head(4).to_string())

# %%
# Fit
# ---
# ``y`` is a list of words, one per row. Text, categories, dates and missing cells need no preparation.
train, test = slice(0, 900), slice(900, None)
model = SinglePositiveClassifier(random_state=0).fit(tickets[train], category[train])

for text, labels in zip(tickets["text"][test][:3], model.predict_labels(tickets[test][:3])):
    print(f"{text}\n    -> {', '.join(labels)}")

# %%
# What one would do instead
# -------------------------
# An ordinary classifier learns to name the one category of a ticket. A label is predicted where its probability
# exceeds one half.
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

usual = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(tickets["text"][train], category[train])
usual_labels = (usual.predict_proba(tickets["text"][test]) > 0.5).astype(int)
labels = model.predict(tickets[test])

# %%
# How many of the subjects are found?
# -----------------------------------
found = {
    "logistic regression": (usual_labels * Y[test]).sum(0) / Y[test].sum(0),
    "onepos": (labels * Y[test]).sum(0) / Y[test].sum(0),
}
right = {
    "logistic regression": (usual_labels * Y[test]).sum() / usual_labels.sum(),
    "onepos": (labels * Y[test]).sum() / labels.sum(),
}
fig, ax = plt.subplots(figsize=(8, 3.2), layout="constrained")
for k, (name, share) in enumerate(found.items()):
    ax.bar(np.arange(len(LABELS)) + 0.38 * k, share, 0.36, label=f"{name} ({right[name]:.0%} of its labels are right)")
ax.set(xticks=np.arange(len(LABELS)) + 0.19, xticklabels=LABELS, ylabel="share of the subjects found", ylim=(0, 1.05))
ax.legend(loc="upper center", bbox_to_anchor=(0.5, 1.25), ncols=2, frameon=False)
plt.show()

# %%
# On the command line
# -------------------
# The same with a file:
#
# .. code-block:: text
#
#     onepos fit tickets.csv --label category
#     onepos predict onepos-model new-tickets.csv
