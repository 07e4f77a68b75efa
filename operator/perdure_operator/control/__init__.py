"""The shell: watches, queues, sweeps and leadership. It observes, asks the plan, and applies the answer."""
