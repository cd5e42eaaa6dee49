"""The experiments of the papers, each repeated by one command: `python -m benchmarks.papers lynceus`."""

import sys
from pathlib import Path

# The other benchmarks are scripts, which import each other by name.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
