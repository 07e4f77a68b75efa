-- Everything that makes up the schema, as text: what a dump would tell, in an order of its own.
SELECT 'table ' || c.relname || ' ' || coalesce(array_to_string(c.reloptions, ','), '') FROM pg_class c
 WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
UNION ALL
SELECT format('column %s.%s %s %s %s %s %s %s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
              a.attnotnull, a.attidentity, a.attgenerated, a.attcollation::regcollation,
              pg_get_expr(d.adbin, d.adrelid))
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
 WHERE c.relnamespace = 'perdure'::regnamespace AND c.relkind IN ('r', 'p')
UNION ALL
SELECT 'index ' || pg_get_indexdef(i.indexrelid) FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
 WHERE c.relnamespace = 'perdure'::regnamespace
UNION ALL
SELECT format('constraint %s %s %s', k.conrelid::regclass, k.conname, pg_get_constraintdef(k.oid)) FROM pg_constraint k
 WHERE k.connamespace = 'perdure'::regnamespace AND k.contype <> 'n'
UNION ALL
SELECT 'function ' || pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = 'perdure'::regnamespace
UNION ALL
SELECT format('comment %s %s %s', c.relname, o.objsubid, o.description) FROM pg_description o
  JOIN pg_class c ON c.oid = o.objoid AND o.classoid = 'pg_class'::regclass
 WHERE c.relnamespace = 'perdure'::regnamespace
UNION ALL
SELECT format('migration %s %s %s', m.version, m.name, m.checksum) FROM perdure.migrations m
 ORDER BY 1
