"""Models as PMML, the XML format of other makers' scoring engines; written here, so nothing is installed."""
