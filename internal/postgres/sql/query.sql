-- name: limitTime
SELECT set_config('tasker.statement_timeout', current_setting('statement_timeout'), true),
set_config('statement_timeout', least($1::bigint, nullif(extract(epoch FROM current_setting('statement_timeout')::interval) * 1000, 0)::bigint)::text, true);

-- name: resetStatementTimeout
SELECT set_config('statement_timeout', current_setting('tasker.statement_timeout'), true);
