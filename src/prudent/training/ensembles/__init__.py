"""Weighted ensembles of the models of a request: which members, how much, and one ONNX file of all."""
