-- Runs are listed, forked and rewound.

ALTER TABLE perdure.workflows
    ADD COLUMN rewinds integer NOT NULL DEFAULT 0,
    ADD COLUMN forked_from text COLLATE "C",
    ADD COLUMN forked_at integer;

COMMENT ON COLUMN perdure.workflows.rewinds IS 'how often it was rewound: part of the ids and keys that its steps give away from then on';
COMMENT ON COLUMN perdure.workflows.forked_from IS 'the run whose steps before forked_at it began with';

-- Lists, in the order of creation. Three small indexes take the same room and the same time as one of all: a version of a
-- row is in one of them at most. What runs is in none, so that a claim writes no further entry; there are never many.
-- What has failed is found among any number of successes.
-- The sum keeps them from fitting a claim or a sweep: where statistics are old, the planner would take one and sort.
CREATE INDEX workflows_listed_open ON perdure.workflows (namespace, created_at, id) WHERE status + 0 IN (10, 20, 40);
CREATE INDEX workflows_listed_succeeded ON perdure.workflows (namespace, created_at, id) WHERE status + 0 = 50;
CREATE INDEX workflows_listed_others ON perdure.workflows (namespace, created_at, id) WHERE status + 0 > 50;
CREATE INDEX workflows_forks ON perdure.workflows (forked_from, id) WHERE forked_from IS NOT NULL;
