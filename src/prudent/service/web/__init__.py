"""The service on the web: REST and pages."""
