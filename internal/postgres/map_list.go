package postgres

import (
	"context"
	"fmt"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

// A page contains at least one item. A state filter scans all items: an index on the state would
// prevent heap-only updates.
//
// $1 task, $2 map step, $3 first ordinal, $4 maximum items plus one, $5 state, $6 maximum bytes.
var selectItemsOfMap = `
WITH chosen AS MATERIALIZED (
    SELECT i.step_uuid, i.item_ordinal, coalesce(i.results_bytes, octet_length(i.results::text), 0)
        + coalesce(octet_length(i.error::text), 0) + octet_length(i.item::text) AS bytes
    FROM tasker.workflow_steps i
    WHERE i.task_uuid = $1 AND i.map_step_uuid = $2 AND i.item_ordinal >= $3 AND ($5 = '' OR i.state = $5)
    ORDER BY i.task_uuid, i.map_step_uuid, i.item_ordinal
    LIMIT $4
),
added AS MATERIALIZED (
    SELECT c.step_uuid, c.item_ordinal, c.place < $4 AND (c.place = 1 OR c.bytes <= $6) AS fits
    FROM (
        SELECT step_uuid, item_ordinal, sum(bytes) OVER (ORDER BY item_ordinal) AS bytes, row_number() OVER (ORDER BY item_ordinal) AS place
        FROM chosen
    ) c
)` + stepColumns + `s.results, s.error, (SELECT min(a.item_ordinal) FROM added a WHERE NOT a.fits) AS next
FROM tasker.get_step_readiness_status($1, ARRAY(SELECT a.step_uuid FROM added a WHERE a.fits)) r
JOIN tasker.workflow_steps s ON s.step_uuid = r.step_uuid
WHERE s.task_uuid = $1
ORDER BY s.item_ordinal`

// MapItems returns a page of the items of a map step, and the first ordinal of the next page or 0
// at the end. It returns NotFound if the step does not exist.
func (db *DB) MapItems(ctx context.Context, task, step tasker.ID, f tasker.MapItemFilter) (list []tasker.Step, next int, err error) {
	type itemRow struct {
		stepRow
		Next *int
	}
	rows, err := collect[itemRow](ctx, db.pool, selectItemsOfMap, task, step, f.From, f.Limit+1, string(f.State), listBudget)
	if err != nil {
		return nil, 0, fmt.Errorf("list map items: %w", err)
	}
	if len(rows) == 0 {
		_, err = db.Step(ctx, task, step)
		return nil, 0, err
	}
	list = mapped(rows, func(r itemRow) tasker.Step { return r.step() })
	if n := rows[0].Next; n != nil {
		next = *n
	}
	access.HideSteps(ctx, list...)
	return list, next, nil
}
