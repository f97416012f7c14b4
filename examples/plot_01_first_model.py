"""
First model: from one label to all labels
=========================================

Each image shows one to four digits. Somebody wrote down **one** of them. We train on these labels alone, and the
model names the others.
"""

# %%
# The data
# --------
# The digit scenes come with onepos: images of 16 × 16 pixels, a row of 256 numbers each. All labels are known, so we
# can hide some. ``draw_single_positive`` keeps one label per image, as if a person had named a single digit.
import matplotlib.pyplot as plt

from onepos import SinglePositiveClassifier, draw_single_positive, evaluate, load_dataset

scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(3000)), scenes.take(scenes.splits["test"])
observed = draw_single_positive(train.Y, random_state=0)

print("labels per image, in truth:  ", train.Y.sum(1).mean())
print("labels per image, as observed:", observed.sum(1).mean())

# %%
# Fit and predict
# ---------------
# ``SinglePositiveClassifier`` is a scikit-learn estimator. Its default method, CRISP+, does not take an unknown label
# for an absent one.
model = SinglePositiveClassifier(random_state=0).fit(train.X, observed)
probability = model.predict_proba(test.X)
predicted = model.predict(test.X)

for name in ("average_precision", "map", "micro_f1"):
    print(f"{name:18} {evaluate(test.Y, probability, names=[name], decisions=predicted)[name]:.3f}")

# %%
# Before and after
# ----------------
# Five test images. Above each is the one label that a person might have written down, below are the labels that the
# model predicts. A label that is not in the image is red.
one_tag = draw_single_positive(test.Y, random_state=0)
several = (test.Y.sum(1) >= 2).nonzero()[0][:5]
fig, axes = plt.subplots(1, 5, figsize=(9, 3.1))
for row, ax in zip(several, axes):
    ax.imshow(test.X[row].reshape(16, 16), cmap="gray_r")
    ax.set(xticks=[], yticks=[])
    ax.set_title("tag: " + test.label_names[one_tag[row].argmax()], fontsize=11)
    for line, label in enumerate(probability[row].argsort()[::-1][: predicted[row].sum()]):
        is_right = test.Y[row, label] == 1
        text = f"{test.label_names[label]} {probability[row, label]:.2f}"
        ax.text(
            0.5, -0.12 - 0.14 * line, text, transform=ax.transAxes, ha="center", color="black" if is_right else "red"
        )
fig.suptitle("Before: one tag per image. After: every label with its probability.", y=0.99)
fig.subplots_adjust(left=0.03, right=0.97, bottom=0.33, top=0.8)
plt.show()

# %%
# Next: :ref:`a table with text <sphx_glr_docs_generated_gallery_plot_02_table_with_text.py>`, or
# :ref:`how probabilities become labels <sphx_glr_docs_generated_gallery_plot_07_thresholds.py>`.
