"""Telling people how a run ended: by mail and by webhook, queued, and never a reason for a run to fail."""
