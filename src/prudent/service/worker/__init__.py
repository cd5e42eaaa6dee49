"""Who does which request: workers, heartbeats, take-overs; durable by DBOS."""
