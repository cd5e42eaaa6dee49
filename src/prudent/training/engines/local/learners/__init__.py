"""The algorithms of the local engine: how each is fitted, and its model with predictions and ONNX graph."""
