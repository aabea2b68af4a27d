SELECT 'sequence ' || schemaname || '.' || sequencename || ' ' || data_type::text || ' '
    || start_value || ' ' || min_value || ' ' || max_value || ' ' || increment_by || ' '
    || cycle || ' ' || cache_size || ' ' || coalesce(last_value::text, 'unused')
    FROM pg_catalog.pg_sequences
UNION ALL
SELECT 'column ' || table_schema || '.' || table_name || '.' || column_name || ' ' || data_type
    || ' ' || is_nullable || ' ' || is_identity || ' ' || coalesce(identity_generation, '')
    || ' ' || coalesce(identity_start, '') || ' ' || coalesce(identity_increment, '')
    || ' ' || (column_default IS NOT NULL)
    FROM information_schema.columns
    WHERE table_schema IN ('public', 's', 'Mixed Case')
UNION ALL
SELECT 'constraint ' || conname || ' ' || contype::text || ' ' || condeferrable || ' '
    || condeferred || ' ' || confupdtype::text || confdeltype::text || ' '
    || coalesce(pg_catalog.obj_description(oid, 'pg_constraint'), '')
    FROM pg_catalog.pg_constraint
    WHERE conrelid IN (SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid = c.relnamespace WHERE n.nspname IN ('public', 's', 'Mixed Case'))
UNION ALL
SELECT 'index ' || indexdef FROM pg_catalog.pg_indexes
    WHERE schemaname IN ('public', 's', 'Mixed Case')
UNION ALL
SELECT 'comment ' || c.relname || ' ' || d.objsubid || ' ' || d.description
    FROM pg_catalog.pg_description d JOIN pg_catalog.pg_class c ON c.oid = d.objoid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('public', 's', 'Mixed Case')
UNION ALL
SELECT 'schema ' || n.nspname || ' ' || d.description
    FROM pg_catalog.pg_description d JOIN pg_catalog.pg_namespace n ON n.oid = d.objoid
    WHERE n.nspname = 's'
UNION ALL
SELECT 'right ' || r || ' ' || p || ' '
    || pg_catalog.has_table_privilege('dump_reader', r, p)
    FROM (VALUES ('s.customers'), ('s.orders'), ('s.totals'), ('public.ser')) AS t (r),
        (VALUES ('SELECT'), ('INSERT'), ('UPDATE'), ('DELETE')) AS q (p)
UNION ALL
SELECT 'right ' || s || ' ' || pg_catalog.has_schema_privilege('dump_reader', s, 'USAGE')
    FROM (VALUES ('s'), ('public'), ('Mixed Case')) AS t (s)
UNION ALL
SELECT 'right s.free ' || pg_catalog.has_sequence_privilege('dump_reader', 's.free', 'USAGE')
ORDER BY 1
