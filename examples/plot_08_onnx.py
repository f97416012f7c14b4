"""
Deploy with ONNX
================

A fitted model becomes one file that runs without onepos and without torch: in a web service, on a phone, in C++, C#,
Java or JavaScript.
"""

# %%
# Export
# ------
import json
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
import pandas as pd

from onepos import SinglePositiveClassifier, draw_single_positive, export_onnx, load_dataset

scenes = load_dataset("digit-scenes")
train, test = scenes.take(range(1000)), scenes.take(scenes.splits["test"])
observed = pd.DataFrame(draw_single_positive(train.Y, random_state=0), columns=train.label_names)
model = SinglePositiveClassifier("an", epochs=10, random_state=0).fit(train.X, observed)
file = Path(tempfile.mkdtemp()) / "model.onnx"
export_onnx(model, file)
print(f"{file.stat().st_size / 1e6:.2f} MB")

# %%
# Run it elsewhere
# ----------------
# From here on only ``onnxruntime`` and NumPy are used. The file scales the rows itself; the names of the labels and
# their thresholds are in its metadata.
session = onnxruntime.InferenceSession(file)
facts = json.loads(session.get_modelmeta().custom_metadata_map["onepos"])
rows = test.X.astype(np.float64)
(probability,) = session.run(["probability"], {"rows": rows})
decided = probability > facts["thresholds"]
print([facts["labels"][k] for k in np.flatnonzero(decided[0])])

# %%
# Both give the same
# ------------------
difference = np.abs(probability - model.predict_proba(rows)).max()
started = time.perf_counter()
for row in rows:
    session.run(["probability"], {"rows": row[None]})
per_row = (time.perf_counter() - started) / len(rows)

fig, ax = plt.subplots(figsize=(4.6, 4.2), layout="constrained")
ax.plot([0, 1], [0, 1], color="gray", lw=1)
ax.plot(model.predict_proba(rows).ravel(), probability.ravel(), ".", ms=3)
ax.set(xlabel="probability from onepos", ylabel="probability from ONNX Runtime", aspect="equal")
ax.set_title(f"Largest difference {difference:.0e}; {1000 * per_row:.2f} ms per row, one by one", fontsize=10)
plt.show()
