"""
From probabilities to decisions
===============================

A model gives a probability for each label. Which labels does a row get? One fit serves every rule; choose the rule by
what a wrong label costs.
"""

# %%
# One fit
# -------
import matplotlib.pyplot as plt

from onepos import SinglePositiveClassifier, draw_single_positive, load_dataset

scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(1500)), scenes.take(scenes.splits["test"])
model = SinglePositiveClassifier(random_state=0).fit(train.X, draw_single_positive(train.Y, random_state=0))
probability = model.predict_proba(test.X)

# %%
# Many rules
# ----------
# ``predict`` takes the rule as ``threshold`` or ``top_k``; so does ``onepos predict``.
#
# - ``"prior"``, the default: each label as often as it is estimated to occur;
# - ``"f1"``: balance labels that are missed and labels that are wrong;
# - ``0.5``: whatever is more likely than not;
# - ``"precision=0.9"``: few labels, nearly all of them right;
# - ``top_k=2``: always the two most probable.
rules = [{"threshold": "prior"}, {"threshold": "f1"}, {"threshold": 0.5}, {"threshold": "precision=0.9"}, {"top_k": 2}]
rows = []
for rule in rules:
    labels = model.decide(probability, **rule)
    right = (labels * test.Y).sum()
    rows.append(
        (
            ", ".join(f"{k}={v}" for k, v in rule.items()),
            right / labels.sum(),
            right / test.Y.sum(),
            labels.sum(1).mean(),
        )
    )
    print(f"{rows[-1][0]:26} precision {rows[-1][1]:.2f}, recall {rows[-1][2]:.2f}, {rows[-1][3]:.2f} labels per row")
print(f"{'in truth':58} {test.Y.sum(1).mean():.2f} labels per row")

# %%
# Choose by what an error costs
# -----------------------------
# Each point is a rule: the higher, the more of the labels are right; the further right, the more of the true labels
# are found.
fig, ax = plt.subplots(figsize=(7, 3.8), layout="constrained")
for (name, precision, recall, n_labels), marker in zip(rows, "osD^v"):
    ax.plot(recall, precision, marker, ms=9, label=f"{name}: {n_labels:.1f} labels per row")
ax.set(xlabel="recall: share of the true labels that are predicted", ylabel="precision: share right")
ax.set(xlim=(0, 1), ylim=(0.5, 1.02))
ax.legend(loc="lower left")
plt.show()
