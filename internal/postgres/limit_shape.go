package postgres

import "strconv"

// A limitProfile is which limits the steps of a claimant's queues have. A claim takes it for granted, since a statement for any costs several times
// one for those of queues, and its statement verifies it.
type limitProfile int

const (
	weighted   limitProfile = iota // those of templates too, of which a step takes several places
	oneEach                        // those of templates too, of which each step takes one place
	sharedOnly                     // only those that all steps of a queue share
)

const limitShapes = 3

// named is a part of a WITH: which limits the steps of the claimant's queues have.
const named = `named AS MATERIALIZED (
    SELECT n.*, CASE WHEN NOT n.names THEN 2 WHEN NOT n.weights THEN 1 ELSE 0 END AS shape
    FROM (SELECT ` + hasNames + ` AS names, ` + hasWeights + ` AS weights) n
),
`

// matchesProfile is a part of a WITH: whether the steps have no other limits than a claim takes for granted.
func (s limitSource) matchesProfile() string {
	return `fits AS MATERIALIZED (SELECT n.shape, n.shape >= ` + strconv.Itoa(int(s.shape)) + ` AS yes FROM named n),
`
}

// mayClaim is true of a worker that gets new work, if the steps have the limits that the claim takes for granted.
func (s limitSource) mayClaim() string { return mayClaim + ` AND (SELECT yes FROM fits)` }

// otherShape adds a row that says which limits the steps have, if it is not what the claim takes for granted.
func (s limitSource) otherShape() string {
	return noteWith("'shape'", "(SELECT shape FROM fits)", "(SELECT shape <> "+strconv.Itoa(int(s.shape))+" FROM fits)")
}

// sharedCandidates are the most urgent steps, queued or parked, of queues with shared limits only.
func sharedCandidates(s limitSource, gates string, h holds) string {
	without := s.without("$6", gates, h)
	first := func(order, which string) string {
		return `(
            SELECT ` + s.columns("s") + `
            FROM tasker.ready_steps s
            WHERE s.namespace = q.namespace AND s.handler = q.handler` + which + without + `
            ORDER BY s.priority DESC, s.` + order + `
            LIMIT least($3::int, q.places)
        )`
	}
	const keys = `q.ids AS keys, array_fill(1, ARRAY[cardinality(q.ids)]) AS weights`
	return `ready AS MATERIALIZED (
    ` + s.firstOf(s.passed("e")+`, NULL::bigint AS aside, `+keys, `open q
        CROSS JOIN LATERAL (
        `+first("state_since", "")+`
        UNION
        `+first("due_at", " AND s.due_at IS NOT NULL")+s.orOld(s.oldest("tasker.ready_steps s", "", without))+`
        ) e
        WHERE `+s.mayClaim()) + `
),
aside AS MATERIALIZED (
    ` + s.firstOf(s.passed("e")+`, k.limit_key_id AS aside, `+keys, `open q
        CROSS JOIN unnest(q.ids) AS k (limit_key_id)
        CROSS JOIN LATERAL (
            (
                SELECT `+s.columns("s")+`
                FROM `+parkedSteps+` s
                WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.limit_key_id = k.limit_key_id`+without+`
                ORDER BY s.priority DESC, s.state_since
                LIMIT least($3::int, q.places)
            )`+s.orOld(s.oldest(parkedSteps+" s", " AND s.limit_key_id = k.limit_key_id", without))+`
        ) e
        WHERE `+s.mayClaim()) + `
),
`
}
