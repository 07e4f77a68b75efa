-- Purpose: a page of the runs behind resources of one namespace, to find those whose resource is gone unseen.
-- Run by: the operator's resync. Locks: none. Expected index: workflows_resource. Zero rows: no further page.
-- Not `namespace = $1`: the planner would then walk the primary key through all other namespaces.
SELECT w.id FROM perdure.workflows w
 WHERE (w.namespace, w.id) > ($1::text, $2::text) AND w.namespace <= $1::text AND w.name IS NOT NULL AND NOT w.deleted
 ORDER BY w.namespace, w.id LIMIT $3::integer
