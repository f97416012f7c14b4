"""
A folder of photos, one folder per label
========================================

Photos are often sorted into folders by what they mainly show. Here small images are made on the fly and sorted in
this way; a network learns from the
names of the folders alone.
"""

# %%
# Make a folder of images
# -----------------------
# Each image shows one to four digits. It is saved in the folder of **one** of them.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image

from onepos import SinglePositiveImageClassifier, draw_single_positive, evaluate, load_dataset
from onepos.images.readers import read_folders

scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(1200)), scenes.take(scenes.splits["test"][:200])
observed = draw_single_positive(train.Y, random_state=0)
folder = Path(tempfile.mkdtemp())


def save(row, file):
    """Write a row of 256 numbers as an image of 32 by 32 pixels."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = (255 - row.reshape(16, 16) / row.max() * 255).astype(np.uint8)
    Image.fromarray(pixels).resize((32, 32)).save(file)


for k, row in enumerate(train.X):
    save(row, folder / "photos" / train.label_names[observed[k].argmax()] / f"{k:04}.png")
for k, row in enumerate(test.X):
    save(row, folder / "new" / f"{k:04}.png")
photos = read_folders(folder / "photos")
print(photos, photos.label_names)

# %%
# Train a network
# ---------------
# For real photos leave out ``network``: a pretrained one is used and stays as it is, and only a linear layer is
# trained on its features (``pip install 'onepos[images]'``). These digits are no photos, so we train a small network
# of our own from the start.
torch.manual_seed(0)


def block(channels, wider):
    return [
        torch.nn.Conv2d(channels, wider, 3, padding=1),
        torch.nn.BatchNorm2d(wider),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
    ]


network = torch.nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), torch.nn.Flatten())
model = SinglePositiveImageClassifier(
    "an", network=network, image_size=32, fine_tune=True, epochs=8, lr=2e-3, random_state=0
)
model.fit([str(file) for file in photos.files], np.array(photos.label_names)[photos.observed.argmax(1)])

# %%
# Which labels do new images get?
# -------------------------------
files = sorted((folder / "new").iterdir())
probability = model.predict_proba(files)
columns = [list(model.classes_).index(name) for name in test.label_names]
probability, predicted = probability[:, columns], model.predict(files)[:, columns]
score = evaluate(test.Y, probability, names=["average_precision"])["average_precision"]
guess = evaluate(test.Y, np.tile(observed.mean(0), (len(files), 1)), names=["average_precision"])["average_precision"]

fig, axes = plt.subplots(2, 6, figsize=(9, 3.8), layout="constrained")
for k, ax in enumerate(axes.flat):
    ax.imshow(Image.open(files[k]), cmap="gray")
    names = [test.label_names[j] for j in probability[k].argsort()[::-1][: predicted[k].sum()]]
    ax.set_title("\n".join(names), fontsize=9)
    ax.set(xticks=[], yticks=[])
fig.suptitle(f"Predicted labels of new images. Average precision {score:.2f}; always the same order gives {guess:.2f}")
plt.show()

# %%
# On the command line
# -------------------
# .. code-block:: text
#
#     onepos fit photos/
#     onepos predict onepos-model new/
