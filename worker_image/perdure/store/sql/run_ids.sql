-- Purpose: a page of the runs behind resources of one namespace, to find those whose resource is gone unseen.
-- Run by: the operator's resync. Locks: none. Expected index: workflows_resource. Zero rows: no further page.
SELECT w.id FROM perdure.workflows w
 WHERE w.namespace = $1::text AND w.id > $2::text AND w.name IS NOT NULL AND NOT w.deleted
 ORDER BY w.id LIMIT $3::integer
