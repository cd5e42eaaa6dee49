"""Where models are trained: on this machine, or on a Spark cluster."""
