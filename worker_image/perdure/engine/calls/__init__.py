"""Durable calls beside steps: sleeps, child runs, messages, events. Each takes its index when it is built."""
