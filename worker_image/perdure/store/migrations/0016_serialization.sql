-- How the values of a run are written, where its start has said so. Each stored value says itself how it was: JSON, or
-- text that begins with `!name:` and was made by the serializer or codec of that name. The column rewrites nothing.

ALTER TABLE perdure.workflows
    ADD COLUMN serialization smallint CHECK (serialization IN (1, 2));

COMMENT ON COLUMN perdure.workflows.serialization IS 'how its values are written: null as its workflow is registered, else as its worker is configured; 1 portable JSON, 2 typed JSON';
