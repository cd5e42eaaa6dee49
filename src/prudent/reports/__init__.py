"""Self-contained HTML reports and plots, made from results alone."""
