"""What a model looks at, where it errs, and whether its score can be trusted: on rows it has not seen."""
