"""Training requests: data, algorithms and searches in, ranked and exported models out."""

import os

# ONNX Runtime would report its use to its makers, and leave a file in the temporary directory.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
