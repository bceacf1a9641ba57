package postgres

// What has waited for a time comes first in some claims, also where steps have limits, or those of a low priority would wait for ever behind more
// urgent ones with the same key.

// oldAt is the instant since which a step has waited for so long that it comes first.
func (s limitSource) oldAt() string { return `(SELECT at FROM clock) - ` + s.age + `::interval` }

// columns are those of a step that is looked at.
func (s limitSource) columns(row string) string {
	if s.age == "" {
		return candidateOf(row)
	}
	return candidateOf(row) + `, CASE WHEN ` + row + `.state_since <= ` + s.oldAt() + ` THEN ` + row + `.state_since ELSE 'infinity' END AS old_since`
}

// passed are the same columns of a row that has them.
func (s limitSource) passed(row string) string {
	if s.age == "" {
		return candidateOf(row)
	}
	return candidateOf(row) + `, ` + row + `.old_since`
}

// order is the one in which the steps of a namespace are handed out.
func (s limitSource) order(row string) string {
	if s.age == "" {
		return urgencyByDue(row)
	}
	return row + `.old_since, ` + urgencyByDue(row)
}

// orOld adds what steps select to the steps of a queue if what has waited for long comes first.
func (s limitSource) orOld(steps string) string {
	if s.age == "" {
		return ""
	}
	return `
        UNION
        (` + steps + `)`
}

// oldest selects the oldest steps of a queue q by jumping between priorities.
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
                    SELECT ` + s.columns("s") + `
                    FROM ` + table + `
                    WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.priority = v.priority AND s.state_since <= ` + s.oldAt() + which + without + `
                    ORDER BY s.state_since
                    LIMIT ` + limitDepth + `
                ) o
                ORDER BY o.state_since
                LIMIT ` + limitDepth
}

// old adds a row if what has waited for long was handed out before what is more urgent.
func (s limitSource) old() string {
	if s.age == "" {
		return ""
	}
	return noteOf("'old'", `EXISTS (
    SELECT FROM admitted a JOIN candidate c ON c.namespace = a.namespace AND c.priority > a.priority WHERE a.old_since < 'infinity'
)`)
}
