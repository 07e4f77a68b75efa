-- Purpose: remove messages, events, streams, waits and promises to undo of ended runs that are marked for removal, a bounded number
-- of each at a time. Run by: whoever removes runs, until it removes none. Nobody writes for an ended run any more, but for
-- messages to it, which nobody will read.
-- Locks: the removed rows. Expected index: workflows_gone, messages_key, events_pkey, events_history_pkey,
-- event_waits_of, event_waits_pkey, run_waits_of, stream_values_pkey, streams_pkey, stream_waits_of,
-- stream_waits_pkey, undos_pkey. One row: how many went. Waits of others for the end of such a run
-- stay until they have been woken.
WITH gone AS MATERIALIZED (
    SELECT w.id FROM perdure.workflows w
     WHERE w.deleted AND w.status >= 50
       AND NOT EXISTS (SELECT FROM perdure.workflows c WHERE c.parent_id = w.id AND c.status < 50)
     ORDER BY w.id LIMIT $1::integer
), sent AS (
    DELETE FROM perdure.messages m
     USING (SELECT t.id FROM gone
             CROSS JOIN LATERAL (SELECT i.id FROM perdure.messages i WHERE i.workflow_id = gone.id
                                  LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE m.id = old.id
    RETURNING m.id
), set AS (
    DELETE FROM perdure.events e
     USING (SELECT t.workflow_id, t.name FROM gone
             CROSS JOIN LATERAL (SELECT i.workflow_id, i.name FROM perdure.events i WHERE i.workflow_id = gone.id
                                  LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE e.workflow_id = old.workflow_id AND e.name = old.name
    RETURNING e.name
), had AS (
    DELETE FROM perdure.events_history h
     USING (SELECT t.workflow_id, t.step_index FROM gone
             CROSS JOIN LATERAL (SELECT i.workflow_id, i.step_index FROM perdure.events_history i
                                  WHERE i.workflow_id = gone.id LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE h.workflow_id = old.workflow_id AND h.step_index = old.step_index
    RETURNING h.step_index
), waited AS (
    DELETE FROM perdure.event_waits v
     USING (SELECT t.run_id, t.name, t.workflow_id, t.step_index FROM gone
             CROSS JOIN LATERAL (SELECT i.* FROM perdure.event_waits i WHERE i.workflow_id = gone.id
                                 UNION
                                 SELECT i.* FROM perdure.event_waits i WHERE i.run_id = gone.id
                                  LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE v.run_id = old.run_id AND v.name = old.name AND v.workflow_id = old.workflow_id
       AND v.step_index = old.step_index
    RETURNING v.run_id
), listened AS (
    DELETE FROM perdure.run_waits v
     USING (SELECT t.run_id, t.workflow_id FROM gone
             CROSS JOIN LATERAL (SELECT i.run_id, i.workflow_id FROM perdure.run_waits i
                                  WHERE i.workflow_id = gone.id LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE v.run_id = old.run_id AND v.workflow_id = old.workflow_id
    RETURNING v.run_id
), streamed AS (
    DELETE FROM perdure.stream_values s
     USING (SELECT t.workflow_id, t.key, t."offset" FROM gone
             CROSS JOIN LATERAL (SELECT i.workflow_id, i.key, i."offset" FROM perdure.stream_values i
                                  WHERE i.workflow_id = gone.id LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE s.workflow_id = old.workflow_id AND s.key = old.key AND s."offset" = old."offset"
    RETURNING s.key
), stream AS (
    DELETE FROM perdure.streams s
     USING (SELECT t.workflow_id, t.key FROM gone
             CROSS JOIN LATERAL (SELECT i.workflow_id, i.key FROM perdure.streams i WHERE i.workflow_id = gone.id
                                  LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE s.workflow_id = old.workflow_id AND s.key = old.key
    RETURNING s.key
), promised AS (
    DELETE FROM perdure.undos u
     USING (SELECT t.workflow_id, t.step_index FROM gone
             CROSS JOIN LATERAL (SELECT i.workflow_id, i.step_index FROM perdure.undos i WHERE i.workflow_id = gone.id
                                  LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE u.workflow_id = old.workflow_id AND u.step_index = old.step_index
    RETURNING u.step_index
), read AS (
    DELETE FROM perdure.stream_waits v
     USING (SELECT t.run_id, t.key, t.workflow_id, t.step_index FROM gone
             CROSS JOIN LATERAL (SELECT i.* FROM perdure.stream_waits i WHERE i.workflow_id = gone.id
                                 UNION
                                 SELECT i.* FROM perdure.stream_waits i WHERE i.run_id = gone.id
                                  LIMIT $2::integer) t LIMIT $2::integer) old
     WHERE v.run_id = old.run_id AND v.key = old.key AND v.workflow_id = old.workflow_id
       AND v.step_index = old.step_index
    RETURNING v.run_id
)
SELECT (SELECT count(*) FROM sent) + (SELECT count(*) FROM set) + (SELECT count(*) FROM had)
       + (SELECT count(*) FROM waited) + (SELECT count(*) FROM listened) + (SELECT count(*) FROM streamed)
       + (SELECT count(*) FROM stream) + (SELECT count(*) FROM read)
       + (SELECT count(*) FROM promised) AS removed
