package postgres

// A claim by age puts old steps first. Otherwise steps of low priority would starve behind more
// urgent steps with the same limit key.

// oldAt returns the time before which a waiting step counts as old.
func (s limitSource) oldAt() string { return `(SELECT at FROM clock) - ` + s.age + `::interval` }

// columns returns the columns of a candidate step s.
func (s limitSource) columns() string {
	if s.age == "" {
		return candidateOf("s")
	}
	return candidateOf("s") + `, CASE WHEN s.state_since <= ` + s.oldAt() + ` THEN s.state_since ELSE 'infinity' END AS old_since`
}

// passed returns the same columns as columns, taken from a row e that already has them.
func (s limitSource) passed() string {
	if s.age == "" {
		return candidateOf("e")
	}
	return candidateOf("e") + `, e.old_since`
}

// order returns the order of steps within a namespace.
func (s limitSource) order(row string) string {
	if s.age == "" {
		return urgencyByDue(row)
	}
	return row + `.old_since, ` + urgencyByDue(row)
}

// orOld returns a union that adds old steps to those of a queue. It is empty for a claim by
// urgency.
func (s limitSource) orOld(steps string) string {
	if s.age == "" {
		return ""
	}
	return `
        UNION
        (` + steps + `)`
}

// oldest selects the oldest steps of queue q. It uses an index skip scan over the priorities.
func (s limitSource) oldest(table, which, without string) string {
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
                    SELECT ` + s.columns() + `
                    FROM ` + table + `
                    WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.priority = v.priority AND s.state_since <= ` + s.oldAt() + which + without + `
                    ORDER BY s.state_since
                    LIMIT ` + limitDepth + `
                ) o
                ORDER BY o.state_since
                LIMIT ` + limitDepth
}

// old adds a row if the claim returns an old step although a more urgent one is waiting.
func (s limitSource) old() string {
	if s.age == "" {
		return ""
	}
	return noteOf("'old'", `EXISTS (
    SELECT FROM admitted a JOIN candidate c ON c.namespace = a.namespace AND c.priority > a.priority WHERE a.old_since < 'infinity'
)`)
}
