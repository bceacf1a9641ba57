package postgres

// A claim by age puts old steps first. Otherwise steps of low priority would starve behind more
// urgent steps with the same limit key.

// oldAtSQL returns the time before which a waiting step counts as old.
func (s limitSource) oldAtSQL() string { return `(SELECT at FROM clock) - ` + s.age + `::interval` }

// columnsSQL returns the columns of a candidate step s.
func (s limitSource) columnsSQL() string {
	if s.age == "" {
		return candidateSQL("s")
	}
	return candidateSQL("s") + `, CASE WHEN s.state_since <= ` + s.oldAtSQL() + ` THEN s.state_since ELSE 'infinity' END AS old_since`
}

// passedSQL returns the same columns as columns, taken from a row e that already has them.
func (s limitSource) passedSQL() string {
	if s.age == "" {
		return candidateSQL("e")
	}
	return candidateSQL("e") + `, e.old_since`
}

// orderSQL returns the order of steps within a namespace.
func (s limitSource) orderSQL(row string) string {
	if s.age == "" {
		return urgencySQL(row)
	}
	return row + `.old_since, ` + urgencySQL(row)
}

// orOldSQL returns a union that adds old steps to those of a queue. It is empty for a claim by
// urgency.
func (s limitSource) orOldSQL(steps string) string {
	if s.age == "" {
		return ""
	}
	return `
        UNION
        (` + steps + `)`
}

// oldestSQL selects the oldest steps of queue q. It uses an index skip scan over the priorities.
func (s limitSource) oldestSQL(table, which, without string) string {
	next := func(below string) string {
		return `SELECT s.priority FROM ` + table + ` WHERE s.namespace = q.namespace AND s.handler = q.handler` + which + below + ` ORDER BY s.priority DESC LIMIT 1`
	}
	return `SELECT o.*
                FROM (
                    WITH RECURSIVE v AS (
                        (` + next("") + `)
                        UNION ALL
                        SELECT (` + next(" AND s.priority < v.priority") + `) FROM v WHERE v.priority IS NOT NULL
                    )
                    SELECT v.priority FROM v WHERE v.priority IS NOT NULL
                ) v
                CROSS JOIN LATERAL (
                    SELECT ` + s.columnsSQL() + `
                    FROM ` + table + `
                    WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.priority = v.priority AND s.state_since <= ` + s.oldAtSQL() + which + without + `
                    ORDER BY s.state_since
                    LIMIT ` + limitDepth + `
                ) o
                ORDER BY o.state_since
                LIMIT ` + limitDepth
}

// oldSQL adds a row if the claim returns an old step although a more urgent one is waiting.
func (s limitSource) oldSQL() string {
	if s.age == "" {
		return ""
	}
	return noteSQL("'old'", `EXISTS (
    SELECT FROM admitted a JOIN candidate c ON c.namespace = a.namespace AND c.priority > a.priority WHERE a.old_since < 'infinity'
)`)
}
