"""How runs are done: workers, heartbeats, take-overs, and a process for each run; durable by DBOS."""
