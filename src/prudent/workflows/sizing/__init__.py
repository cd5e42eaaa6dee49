"""What programs need: memory, run time and output size, predicted from earlier runs."""
