"""Place scientific workflows on mixed machines: simulate, schedule, execute."""
