"""Run plans with real commands on workers.

- `runner`, `options`: the verb `execute`, one session of it, its options and limits
- `plan_follower`, `dispatch`, `replanner`: follow a plan event by event, plan the rest anew where needed
- `limit_guard`, `money`: keep budget and deadline; what rented machines cost
- `forecast`, `learning`: cost and time in advance; what real runs teach
- `journal`, `run`, `resume`, `work_folder`: what is written down, read again, and still valid
- `workers`, `local_workers`, `rented_workers`, `command`: where and how activations run
"""
