package postgres

// parkedSteps selects parked steps with the columns of ready_steps.
var parkedSteps = `(SELECT a.*, ` + orderSQL("a") + ` AS due_at FROM tasker.held_steps a)`

func queueCandidatesSQL(s limitSource, gates string, h holdMode) string {
	const ofKey = ` AND s.limit_key_id = q.limit_key_id`
	without := s.withoutSQL("$6", gates, h)
	inKey := `LIMIT least($3::int, q.places, CASE WHEN (SELECT of FROM places) ? q.limit_key_id::text THEN ` + slotsRemainingSQL("q.limit_key_id") + `
                WHEN NOT EXISTS (SELECT FROM tasker.limit_keys x WHERE x.limit_key_id = q.limit_key_id) THEN $3::int ELSE 0 END)`
	queued := s.readySQL("state_since", "", without) + `
        UNION
        ` + s.readySQL("due_at", " AND s.due_at IS NOT NULL", without) +
		s.orOldSQL(s.openSQL(s.oldestSQL("tasker.ready_steps s", "", without), "s.state_since",
			"LIMIT least($3::int, q.places)"))
	ofKeys := `(` + s.openSQL(firstStepsSQL(s.columnsSQL(), parkedSteps+" s", "s.state_since", ofKey+without, limitDepth), "s.priority DESC, s.state_since", inKey) + `)` +
		s.orOldSQL(s.openSQL(s.oldestSQL(parkedSteps+" s", ofKey, without), "s.state_since", inKey))
	return `
parked_keys AS MATERIALIZED (
    SELECT q.*, k.limit_key_id FROM open q CROSS JOIN LATERAL (` + parkedKeysSQL("$8::bigint") + `) k WHERE q.places > 0
),
` + s.reservedSQL() + `ready AS MATERIALIZED (
    ` + s.firstSQL(s.passedSQL()+`, NULL::bigint AS parked, `+keysAndWeightsSQL("e"), `open q
        CROSS JOIN LATERAL (
        `+queued+`
        ) e
        WHERE `+s.mayClaimSQL()) + `
),
parked AS MATERIALIZED (
    ` + s.firstSQL(s.passedSQL()+`, q.limit_key_id AS parked, `+keysAndWeightsSQL("e"), `parked_keys q
        CROSS JOIN LATERAL (
        `+ofKeys+`
        ) e
        WHERE `+s.mayClaimSQL()) + `
),
`
}

// keysAndWeightsSQL returns the limit keys of a step in queue q and their weights.
func keysAndWeightsSQL(row string) string {
	return `q.ids || ` + row + `.ids AS keys, array_fill(1, ARRAY[cardinality(q.ids)]) || ` + row + `.weights AS weights`
}

// reservedSQL is a common table expression with the keys that steps reserve because they need more
// slots than are free.
func (s limitSource) reservedSQL() string {
	if s.shape == oneEach {
		return ""
	}
	return `reserved AS MATERIALIZED (
    SELECT k.id, e.priority, e.due_at, e.state_since
    FROM open q
    CROSS JOIN LATERAL ` + s.waitingSQL("tasker.ready_steps s", "s.due_at", "") + ` e
    CROSS JOIN unnest(e.wants) AS k (id)
    WHERE q.places > 0 AND (SELECT weights FROM named)
    UNION ALL
    SELECT k.id, e.priority, e.due_at, e.state_since
    FROM parked_keys q
    CROSS JOIN LATERAL ` + s.waitingSQL("tasker.held_steps s", orderSQL("s"), " AND s.limit_key_id = q.limit_key_id") + ` e
    CROSS JOIN unnest(e.wants) AS k (id)
    WHERE (SELECT weights FROM named)
),
`
}

// waitingSQL selects those of the first steps in queue q that need more slots than their keys have
// free. Less urgent steps must not use these slots.
func (s limitSource) waitingSQL(table, due, which string) string {
	return `(
        SELECT s.*, n.wants
        FROM (` + firstStepsSQL("s.task_uuid, s.step_uuid, s.priority, s.state_since, "+due+" AS due_at", table, "s.state_since", which, limitDepth) + `) s
        CROSS JOIN LATERAL ` + s.stepKeysSQL("s") + ` n
        WHERE n.wants IS NOT NULL
    )`
}

// mayTakeSQL is true if no more urgent step reserves any of the keys n.ids of step s.
func (s limitSource) mayTakeSQL() string {
	if s.shape == oneEach {
		return "true"
	}
	return `NOT EXISTS (
                SELECT FROM reserved k
                WHERE k.id = ANY (n.ids) AND (-k.priority, coalesce(k.due_at, 'infinity'), k.state_since) < (-s.priority, coalesce(s.due_at, 'infinity'), s.state_since)
            )`
}

// readySQL selects the first ready steps of queue q whose keys have free slots, by priority and the
// given order.
func (s limitSource) readySQL(order, which, without string) string {
	return `(` + s.openSQL(firstStepsSQL(s.columnsSQL(), "tasker.ready_steps s", "s."+order, which+without, limitDepth), "s.priority DESC, s."+order, "LIMIT least($3::int, q.places)") + `)`
}

// firstStepsSQL selects the first steps s of queue q by priority and the given order.
func firstStepsSQL(columns, table, order, which, limit string) string {
	return `
            SELECT ` + columns + `
            FROM ` + table + `
            WHERE s.namespace = q.namespace AND s.handler = q.handler` + which + `
            ORDER BY s.priority DESC, ` + order + `
            LIMIT ` + limit
}

// firstReadySQL selects the first ready steps of queue q by age, and the first ones by due time.
func firstReadySQL(columns, which, limit string) string {
	return `(` + firstStepsSQL(columns, "tasker.ready_steps s", "s.state_since", which, limit) + `)
        UNION
        (` + firstStepsSQL(columns, "tasker.ready_steps s", "s.due_at", " AND s.due_at IS NOT NULL"+which, limit) + `)`
}

// openSQL selects those of the steps whose keys all have enough free slots.
func (s limitSource) openSQL(steps, order, limit string) string {
	return `
            SELECT s.*, n.ids, n.weights
            FROM (
                ` + steps + `
            ) s
            CROSS JOIN LATERAL ` + s.stepKeysSQL("s") + ` n
            WHERE n.open AND ` + s.mayTakeSQL() + `
            ORDER BY ` + order + `
            ` + limit + `
        `
}

func urgencySQL(row string) string {
	return row + `.priority DESC, ` + row + `.due_at, ` + row + `.state_since`
}

func namedCandidatesSQL(s limitSource, gates string, h holdMode) string {
	return `
ready AS MATERIALIZED (
    SELECT s.*, NULL::bigint AS parked, ` + keysAndWeightsSQL("n") + `, NULL::bigint AS nth
    FROM (
        SELECT ` + candidateSQL("r") + `
        FROM clock k
        CROSS JOIN unnest($8::uuid[], $9::uuid[]) AS d (task_uuid, step_uuid)
        JOIN tasker.workflow_steps s ON s.task_uuid = d.task_uuid AND s.step_uuid = d.step_uuid AND s.state = k.enqueued
            AND s.step_uuid <> ALL ($6::uuid[]) AND s.namespace = ANY ($1::text[]) AND s.handler = ANY ($2::text[])
        JOIN tasker.ready_steps r ON ` + readyKey + ` AND r.task_uuid = s.task_uuid
        WHERE ` + s.mayClaimSQL() + h.free("r", gates) + `
    ) s
    JOIN open q ON q.namespace = s.namespace AND q.handler = s.handler AND q.places > 0
    CROSS JOIN LATERAL ` + s.stepKeysSQL("s") + ` n
    WHERE n.open
),
parked AS MATERIALIZED (SELECT * FROM ready WHERE false),
`
}
