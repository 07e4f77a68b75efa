-- Purpose: what a step does in the transaction of its own outcome. Run by: the body of such a step.
INSERT INTO faults.once (run, step_index) VALUES ($1::text, $2::integer)
