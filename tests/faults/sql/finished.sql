-- Purpose: does anything still come to its end? Run by: the harness, when the faults are over.
SELECT count(*) AS finished FROM perdure.workflow_steps s WHERE s.status >= 30
