"""Make up a help desk: tickets about one to three subjects, filed under one of them.

    python make_tickets.py

writes four files into the folder where it is called: tickets.csv (id, text, channel, opened, category), new-
tickets.csv (the same without the
category), truth.csv (all labels of the new tickets) and answers.csv (all labels of 50 random tickets, as a person
would review them).
"""

import numpy as np
import pandas as pd

SENTENCES = {
    "billing": [
        "I was charged twice",
        "the invoice is wrong",
        "please refund the payment",
        "my credit card was declined",
    ],
    "cancel": [
        "I want to cancel my order",
        "please close the contract",
        "stop the subscription",
        "I no longer need it",
    ],
    "damage": ["the screen is cracked", "it arrived broken", "one part is missing", "the box was open and wet"],
    "delivery": [
        "the parcel is late",
        "the package has not arrived",
        "the tracking number is unknown",
        "wrong street on it",
    ],
    "login": ["I cannot sign in", "the reset mail never comes", "my account is locked", "the code is not accepted"],
}
VAGUE = {  # what may be about either of two subjects
    "billing": ["I want my money back", "please check my order"],
    "cancel": ["I want my money back", "I will not wait any longer"],
    "damage": ["nothing works any more", "please send a new one"],
    "delivery": ["I will not wait any longer", "please check my order", "please send a new one"],
    "login": ["nothing works any more"],
}
LABELS = list(SENTENCES)
OPENINGS, ENDINGS = ["Hello", "Dear team", "Hi there"], ["Thank you", "Please help", "Regards"]


def make_tickets(n, random_state=0):
    """A table of n tickets, one label of each, and all labels of each as a 0/1 array."""
    rng = np.random.default_rng(random_state)
    Y = np.zeros((n, len(LABELS)), int)
    for row in Y:
        size = rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2])
        row[rng.choice(len(LABELS), size=size, replace=False, p=[0.3, 0.2, 0.15, 0.2, 0.15])] = 1
    texts = []
    for row in Y:
        subjects = [LABELS[k] for k in rng.permutation(np.flatnonzero(row))]
        parts = [rng.choice((VAGUE if rng.random() < 0.25 else SENTENCES)[subject]) for subject in subjects]
        texts.append(". ".join([rng.choice(OPENINGS), *parts, rng.choice(ENDINGS)]))
    table = pd.DataFrame(
        {
            "id": [f"T{k:04}" for k in range(n)],
            "text": texts,
            "channel": rng.choice(["mail", "phone", None], size=n, p=[0.6, 0.3, 0.1]),
            "opened": pd.Timestamp("2026-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D"),
        }
    )
    category = [LABELS[rng.choice(np.flatnonzero(row))] for row in Y]
    return table, category, Y


def main():
    table, category, Y = make_tickets(1000)
    old, new = slice(0, 800), slice(800, None)
    table[old].assign(category=category[old]).to_csv("tickets.csv", index=False)
    table[new].to_csv("new-tickets.csv", index=False)
    names = [";".join(np.array(LABELS)[row == 1]) for row in Y[new]]
    table[new].assign(labels=names).to_csv("truth.csv", index=False)
    rows = np.random.default_rng(1).choice(800, 50, replace=False)
    answers = pd.DataFrame(Y[rows], index=table["id"].iloc[rows].rename("item"), columns=LABELS)
    answers.melt(ignore_index=False, var_name="label").sort_index().to_csv("answers.csv")
    print("wrote tickets.csv, new-tickets.csv, truth.csv and answers.csv")


if __name__ == "__main__":
    main()
