import argparse, sys, time, json

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from isolation import fuzz
from targets import TARGETS

a = argparse.ArgumentParser()
a.add_argument("--only", default="")
a.add_argument("--seed", type=int, default=0)
a.add_argument("--cases", type=int)
a.add_argument("--first", type=int, default=0)
a.add_argument("--seconds", type=float, default=3)
o = a.parse_args()
import collections

for name, t in TARGETS.items():
    if o.only and name not in o.only.split("/"):
        continue
    try:
        r = fuzz(t, o.seed, seconds=None if o.cases else o.seconds, cases=o.cases, first=o.first)
    except Exception as e:
        print("!!", name, type(e).__name__, str(e)[:300])
        continue
    print(
        name,
        r["inputs"],
        r["counts"],
        "mem",
        r["memory"] >> 20,
        "slow",
        round(r["slowest"], 1),
        round(r["seconds"], 1),
        flush=True,
    )
    seen = collections.Counter()
    for f in r["faults"]:
        key = f["kind"] + " " + f["text"][:110]
        seen[key] += 1
        if seen[key] == 1:
            print("   ", f["case"], f["kind"], f["text"][: (1600 if o.cases == 1 else 330)].replace("\n", "\n        "))
