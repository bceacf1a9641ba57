package postgres

import "strconv"

// A limitProfile identifies what kinds of limits a claimant's steps have. A claim assumes a
// profile, and its statement verifies the assumption. The statement for all kinds of limits is
// several times as expensive.
type limitProfile int

const (
	weighted   limitProfile = iota // limits from templates, some with several slots per step
	oneEach                        // limits from templates, all with one slot per step
	sharedOnly                     // only limits that all steps in a queue share
)

const limitShapes = 3

// named is a common table expression with the actual profile.
const named = `named AS MATERIALIZED (
    SELECT n.*, CASE WHEN NOT n.names THEN 2 WHEN NOT n.weights THEN 1 ELSE 0 END AS shape
    FROM (SELECT ` + hasNames + ` AS names, ` + hasWeights + ` AS weights) n
),
`

// matchesProfileSQL is a common table expression that reports whether the assumed profile covers
// the actual one.
func (s limitSource) matchesProfileSQL() string {
	return `fits AS MATERIALIZED (SELECT n.shape, n.shape >= ` + strconv.Itoa(int(s.shape)) + ` AS yes FROM named n),
`
}

// mayClaimSQL is true if the worker may get work and the assumed profile is sufficient.
func (s limitSource) mayClaimSQL() string { return mayClaim + ` AND (SELECT yes FROM fits)` }

// otherProfileSQL adds a row with the actual profile if the assumed one is different.
func (s limitSource) otherProfileSQL() string {
	return noteWithNumberSQL("'shape'", "(SELECT shape FROM fits)",
		"(SELECT shape <> "+strconv.Itoa(int(s.shape))+" FROM fits)")
}

// sharedCandidatesSQL selects the most urgent steps, ready or parked, from queues that have only
// shared limits.
func sharedCandidatesSQL(s limitSource, gates string, h holdMode) string {
	without := s.withoutSQL("$6", gates, h)
	const places = `least($3::int, q.places)`
	const keys = `q.ids AS keys, array_fill(1, ARRAY[cardinality(q.ids)]) AS weights`
	return `ready AS MATERIALIZED (
    ` + s.firstSQL(s.passedSQL()+`, NULL::bigint AS parked, `+keys, `open q
        CROSS JOIN LATERAL (
        `+firstReadySQL(s.columnsSQL(), without, places)+s.orOldSQL(s.oldestSQL("tasker.ready_steps s", "", without))+`
        ) e
        WHERE `+s.mayClaimSQL()) + `
),
parked AS MATERIALIZED (
    ` + s.firstSQL(s.passedSQL()+`, k.limit_key_id AS parked, `+keys, `open q
        CROSS JOIN unnest(q.ids) AS k (limit_key_id)
        CROSS JOIN LATERAL (
            (`+firstStepsSQL(s.columnsSQL(), parkedSteps+" s", "s.state_since", " AND s.limit_key_id = k.limit_key_id"+without, places)+`)`+s.orOldSQL(s.oldestSQL(parkedSteps+" s", " AND s.limit_key_id = k.limit_key_id", without))+`
        ) e
        WHERE `+s.mayClaimSQL()) + `
),
`
}
