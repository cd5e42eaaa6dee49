"""200 random studies on machines, in all kinds of trouble: python benchmarks/clusters_soak.py [STUDIES]

Each is a real study on machines of this computer whose launches fail (capacity, quota, transient errors,
answers that are lost), that are taken away, change their price, and whose process is killed with SIGKILL at
a named place and resumed. See tests/tuning/clusters_soak.py for what is checked.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "tuning"))

from clusters_soak import soak, summary

STUDIES, AT_ONCE = 200, 4


def main() -> None:
    studies = int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {AT_ONCE} studies at once\n")
    begun_s = time.perf_counter()
    seen = summary(soak(range(studies), AT_ONCE))
    befell, broken = seen.pop("befell"), seen.pop("broken")
    print("| what | |\n|---|---|")
    for what, figure in {**seen, "seconds": time.perf_counter() - begun_s, **befell}.items():
        print(f"| {what.replace('_', ' ')} | {figure:.6g} |")
    print(f"\n{len(broken)} studies broke a promise")
    for seed, promises in broken.items():
        print(f"- {seed}: {'; '.join(promises)}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
