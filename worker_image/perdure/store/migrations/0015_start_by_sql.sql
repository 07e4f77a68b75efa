-- Starting a run by plain SQL: from triggers, from programs without Python, in any transaction of this database.

CREATE FUNCTION perdure.start_workflow(
    workflow text,
    input jsonb DEFAULT '[]',
    id text DEFAULT NULL,
    namespace text DEFAULT 'default',
    pool text DEFAULT 'default',
    queue text DEFAULT 'default',
    priority integer DEFAULT 100,
    timeout interval DEFAULT NULL,
    delay interval DEFAULT NULL,
    partition_key text DEFAULT '',
    deduplication_id text DEFAULT NULL,
    attributes jsonb DEFAULT NULL,
    max_run_attempts integer DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SECURITY INVOKER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    wanted text := start_workflow.id;
    begin_at timestamptz := clock_timestamp() + start_workflow.delay;
    made text;
    there record;
    wrong text;
BEGIN
    wrong := CASE
        WHEN start_workflow.workflow IS NULL OR start_workflow.workflow !~ '^[!-~]{1,253}$'
            THEN 'workflow is a registered name: 1 to 253 printable ASCII characters without spaces'
        WHEN start_workflow.input IS NULL THEN 'input is JSON: a list by position, an object by name'
        WHEN wanted IS NOT NULL AND wanted !~ '^[^[:cntrl:]]{1,255}$' THEN 'id is 1 to 255 printable characters'
        WHEN (start_workflow.namespace ~ '^[^[:cntrl:]]{1,63}$' AND start_workflow.pool ~ '^[^[:cntrl:]]{1,63}$'
              AND start_workflow.queue ~ '^[^[:cntrl:]]{1,63}$') IS NOT TRUE
            THEN 'namespace, pool and queue are 1 to 63 printable characters each'
        WHEN start_workflow.priority IS NULL OR start_workflow.priority < 1 THEN 'priority must be at least 1'
        WHEN start_workflow.timeout <= interval '0' OR start_workflow.timeout > interval '36500 days'
            THEN 'timeout must be longer than zero and at most a hundred years'
        WHEN start_workflow.delay <= interval '0' OR start_workflow.delay > interval '36500 days'
            THEN 'delay must be longer than zero and at most a hundred years'
        WHEN start_workflow.partition_key IS NULL OR start_workflow.partition_key !~ '^[^[:cntrl:]]{0,255}$'
            THEN 'partition_key is at most 255 printable characters'
        WHEN start_workflow.deduplication_id !~ '^[^[:cntrl:]]{1,255}$'
            THEN 'deduplication_id is 1 to 255 printable characters'
        WHEN jsonb_typeof(start_workflow.attributes) <> 'object' OR octet_length(start_workflow.attributes::text) > 16384
            THEN 'attributes are a JSON object of at most 16 KiB'
        WHEN start_workflow.max_run_attempts NOT BETWEEN 1 AND 100 THEN 'max_run_attempts must be 1 to 100'
    END;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'PRD-520: %', wrong USING ERRCODE = 'PD520';
    END IF;
    IF octet_length(start_workflow.input::text) > 1048576 THEN
        RAISE EXCEPTION 'PRD-403: the input is more than 1 MiB: store it elsewhere, pass a reference'
            USING ERRCODE = 'PD403';
    END IF;
    IF wanted IS NULL THEN
        -- Version 7: its beginning rises with time, so that new rows lie side by side in the index.
        wanted := lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0');
        wanted := substr(wanted, 1, 8) || '-' || substr(wanted, 9) || '-7' || substr(gen_random_uuid()::text, 16);
    END IF;

    -- What is in the way may go away between two statements, but hardly again and again.
    FOR attempt IN 1..10 LOOP
        INSERT INTO perdure.workflows (
            id, namespace, workflow, requires, pool, queue, priority, timeout, status, run_at, wake_at, waiting_for,
            waiting_since, partition_key, deduplication_id, attributes, max_run_attempts)
        VALUES (wanted, start_workflow.namespace, start_workflow.workflow,
                ARRAY['workflow:' || start_workflow.workflow], start_workflow.pool, start_workflow.queue,
                start_workflow.priority, start_workflow.timeout, CASE WHEN begin_at IS NULL THEN 10 ELSE 20 END,
                coalesce(begin_at, clock_timestamp()), begin_at,
                CASE WHEN begin_at IS NOT NULL
                     THEN jsonb_build_object('kind', 'StartDelayed', 'message', 'it was started with a delay',
                                             'until', begin_at) END,
                clock_timestamp(), start_workflow.partition_key, start_workflow.deduplication_id,
                start_workflow.attributes, start_workflow.max_run_attempts)
        ON CONFLICT DO NOTHING
        RETURNING workflows.id INTO made;
        IF made IS NOT NULL THEN
            INSERT INTO perdure.workflow_payloads (workflow_id, input) VALUES (made, start_workflow.input::text)
            ON CONFLICT (workflow_id) DO UPDATE
               SET input = excluded.input, definition = NULL, output = NULL, error = NULL;
            RETURN made;
        END IF;

        SELECT w.namespace, w.workflow, p.input INTO there
          FROM perdure.workflows w LEFT JOIN perdure.workflow_payloads p ON p.workflow_id = w.id
         WHERE w.id = wanted;
        IF FOUND THEN
            -- A text that begins like this is no JSON: a serializer of somebody's own has written it.
            IF there.namespace = start_workflow.namespace AND there.workflow = start_workflow.workflow
               AND (CASE WHEN there.input LIKE '!%' THEN false ELSE there.input::jsonb = start_workflow.input END)
            THEN
                RETURN wanted;
            END IF;
            RAISE EXCEPTION 'PRD-521: the id % belongs to a run of workflow % in namespace % that was started otherwise',
                wanted, there.workflow, there.namespace USING ERRCODE = 'PD521';
        END IF;
        SELECT w.id INTO there FROM perdure.workflows w
         WHERE w.namespace = start_workflow.namespace AND w.queue = start_workflow.queue
           AND w.deduplication_id = start_workflow.deduplication_id AND w.status < 50;
        IF FOUND THEN
            RAISE EXCEPTION 'PRD-527: run % holds deduplication id % of queue % and has not ended',
                there.id, start_workflow.deduplication_id, start_workflow.queue USING ERRCODE = 'PD527';
        END IF;
    END LOOP;
    RAISE EXCEPTION 'PRD-521: what was in the way of run % went away again and again', wanted USING ERRCODE = 'PD521';
END $$;

COMMENT ON FUNCTION perdure.start_workflow IS 'starts a run when the transaction commits, or finds the one that was started so before; its id';
