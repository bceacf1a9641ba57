-- name: commit
SELECT pg_logical_emit_message(true, 'tasker', '');
