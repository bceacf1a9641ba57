package postgres

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tasker.example/tasker"
)

// A queue consists of the steps with one namespace and handler. It is a range of the index
// ready_steps_to_claim. A worker with one queue locks as many steps as it can get and skips locked
// rows. For several queues, the claim first reads the most urgent steps without locks, and then
// locks only those. If other claims hold too many of them, it repeats.
//
// $1 namespaces, $2 handlers, $3 limit, $4 worker, $5 lease, $6 steps to exclude, $7 remaining
// bytes, $8 steps to read of each queue, $9 the turn of each namespace and $10 its increment per
// step (see fairness.go), $11 the minimum age of a claim by age.
//
// Each statement has two variants. While steps are held, the plain one claims nothing and only
// reports that. The unheld one checks each step, which is slower. Neither claims steps that may
// have a limit.
var (
	claimSteps, claimUnheldSteps = claimOneSQL(withoutHolds, false), claimOneSQL(withHolds, false)
	claimOfSeveral               = buildClaimVariants()
	// For claims that follow a report which has already claimed steps directly.
	claimMoreSteps, claimMoreOfSeveral = claimOneSQL(withoutHolds, true),
		claimSomeSQL(everyQueueSQL, byUrgency, withoutHolds, true)
)

// claimVariant selects a statement that claims from several queues. If many is set, the worker has
// so many queues that it is cheaper to find the nonempty ones first.
type claimVariant struct {
	order *claimOrder
	many  bool
}

func buildClaimVariants() map[claimVariant]struct{ plain, unheld string } {
	all := map[claimVariant]struct{ plain, unheld string }{}
	for _, o := range []*claimOrder{&byUrgency, &byTurn, &byAge} {
		for many, queues := range map[bool]func(claimOrder) string{false: everyQueueSQL, true: waitingQueuesSQL} {
			all[claimVariant{o, many}] = struct{ plain, unheld string }{
				claimSomeSQL(queues, *o, withoutHolds, false), claimSomeSQL(queues, *o, withHolds, false),
			}
		}
	}
	return all
}

// claimOrder defines the order in which a claim reads several queues. Its fields are fragments of
// SQL.
type claimOrder struct {
	namespaces string // FROM item q with the worker's namespaces
	queue      string // additional columns of a queue, taken from its namespace
	levels     string // common table expression that divides queues by priority
	from       string // common table expression that contains the queues
	wait       string // additional column of a step s
	turn       string // additional column of a step e in a queue q
	group      string // columns that identify a queue
	by         string // ORDER BY columns for steps
	gates      string // parameter with the gates of holds
	notes      string // result rows that are not steps
}

// levelSQL returns the condition that assigns a step s to its part of a queue divided by priority.
func (o claimOrder) levelSQL(of string) string {
	if o.levels == "" {
		return ""
	}
	return " AND s.priority = " + of + ".priority"
}

const urgency = "priority DESC, state_since"

// byUrgency is for a single namespace: highest priority first, then oldest.
var byUrgency = claimOrder{
	namespaces: `unnest($1::text[]) AS q (namespace)`, from: "queues",
	group: "namespace, handler", by: urgency, gates: "$9",
}

// byTurn alternates between namespaces. The steps of each namespace are ordered by urgency.
var byTurn = claimOrder{
	namespaces: `unnest($1::text[], $9::float8[], $10::float8[]) AS q (namespace, turn, share)`, queue: ", q.turn, q.share",
	from: "queues", turn: roundRobinRankSQL(urgency),
	group: "namespace, handler", by: "turn, " + urgency, gates: "$11",
}

// ordersByAge is byTurn, but steps older than $11 come first. It reads one index range per
// priority.
var byAge = claimOrder{
	namespaces: byTurn.namespaces, queue: byTurn.queue, from: "levels",
	levels: priorityLevelsSQL("levels", "queues", "q.namespace, q.handler, q.turn, q.share") + ",\n",
	wait:   `, CASE WHEN s.state_since <= (SELECT at FROM clock) - $11::interval THEN s.state_since ELSE 'infinity' END AS old_since`,
	turn:   roundRobinRankSQL("old_since, " + urgency),
	group:  "namespace, handler, priority", by: "turn, old_since, " + urgency, gates: "$12",
	notes: noteSQL(`'old'`, `(SELECT min(priority) FROM candidate WHERE old_since < 'infinity') < (SELECT max(priority) FROM levels)`),
}

// roundRobinRankSQL returns a column with the turn of each step in its namespace. The steps of a
// namespace are in the given order.
func roundRobinRankSQL(order string) string {
	return `, q.turn + q.share * (row_number() OVER (PARTITION BY e.namespace ORDER BY e.` + strings.ReplaceAll(order, ", ", ", e.") + `) - 1) AS turn`
}

// priorityLevelsSQL returns a common table expression that pairs the queues of another one with
// their priorities. It finds the priorities by a skip scan of the index.
func priorityLevelsSQL(name, queues, columns string) string {
	return `
` + name + ` AS (
    SELECT ` + columns + `, h.priority
    FROM ` + queues + ` q
    CROSS JOIN LATERAL (
        SELECT s.priority
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler
        ORDER BY s.priority DESC
        LIMIT 1
    ) h
    UNION ALL
    SELECT ` + columns + `, h.priority
    FROM ` + name + ` q
    CROSS JOIN LATERAL (
        SELECT s.priority
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler AND s.priority < q.priority
        ORDER BY s.priority DESC
        LIMIT 1
    ) h
)`
}

func claimOneSQL(h holdMode, b claimedBefore) string {
	return `
WITH ` + h.clockSQL(hasLimits) + `,` + b.withSQL() + `
locked AS MATERIALIZED (
    SELECT q.*
    FROM unnest($1::text[]) AS n (namespace)
    CROSS JOIN unnest($2::text[]) AS h (handler)
    CROSS JOIN LATERAL (
        SELECT s.ctid AS ready_row, s.task_uuid, s.step_uuid, s.priority, s.state_since, s.inputs_bytes
        FROM tasker.ready_steps s
        WHERE s.namespace = n.namespace AND s.handler = h.handler AND s.step_uuid <> ALL ($6::uuid[])` + h.free("s", "$8") + `
        ORDER BY s.priority DESC, s.state_since
        LIMIT ` + b.stepsSQL("$3") + `
        FOR NO KEY UPDATE SKIP LOCKED
    ) q
    WHERE ` + mayClaim + `
),
` + leaseStepsSQL("", b) + blockedStepsSQL("locked")
}

func claimSomeSQL(queues func(claimOrder) string, o claimOrder, h holdMode, b claimedBefore) string {
	return `
WITH RECURSIVE ` + h.clockSQL(hasLimits) + `,` + b.withSQL() + `
` + queues(o) + o.levels + claimBodySQL(o, h, b) + leaseStepsSQL("", b) + blockedStepsSQL("candidate") + wantedMore + o.notes
}

// mayClaimSQL is true if worker $4 may get work and the claim need not check holds or limits.
const mayClaim = getsWork + `
      AND NOT (SELECT held OR limited FROM clock)`

const getsWork = `EXISTS (SELECT FROM tasker.workers w WHERE w.worker_uuid = $4 AND w.left_at IS NULL AND w.draining_since IS NULL)`

func everyQueueSQL(o claimOrder) string {
	return `
queues AS (
    SELECT q.namespace, h.handler` + o.queue + `
    FROM ` + o.namespaces + `
    CROSS JOIN unnest($2::text[]) AS h (handler)
),
`
}

// waitingQueuesSQL finds the nonempty queues of the namespaces. It reads one index entry per queue.
func waitingQueuesSQL(o claimOrder) string {
	return `
waiting AS (
    SELECT q.namespace` + o.queue + `, (
        SELECT s.handler FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace
        ORDER BY s.handler LIMIT 1
    ) AS handler
    FROM ` + o.namespaces + `
    UNION ALL
    SELECT q.namespace` + o.queue + `, (
        SELECT s.handler FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler > q.handler
        ORDER BY s.handler LIMIT 1
    )
    FROM waiting q
    WHERE q.handler IS NOT NULL
),
queues AS (SELECT q.namespace, q.handler` + o.queue + ` FROM waiting q WHERE q.handler = ANY ($2::text[])),
`
}

func claimBodySQL(o claimOrder, h holdMode, b claimedBefore) string {
	return `
candidate AS MATERIALIZED (
    SELECT e.*` + o.turn + `
    FROM ` + o.from + ` q
    CROSS JOIN LATERAL (
        SELECT s.task_uuid, s.step_uuid, s.namespace, s.handler, s.priority, s.state_since, s.inputs_bytes` + o.wait + `
        FROM tasker.ready_steps s
        WHERE s.namespace = q.namespace AND s.handler = q.handler` + o.levelSQL("q") + ` AND s.step_uuid <> ALL ($6::uuid[])` + h.free("s", o.gates) + `
        ORDER BY s.priority DESC, s.state_since
        LIMIT ` + b.stepsSQL("$8::int") + `
    ) e
    WHERE ` + mayClaim + `
    ORDER BY ` + o.by + `
    LIMIT ` + b.stepsSQL("$8::int") + `
),
wanted AS MATERIALIZED (
    SELECT ` + o.group + `, count(*) AS steps
    FROM (
        SELECT ` + o.group + `, row_number() OVER urgency AS place, sum(least(inputs_bytes, ` + maxStepBytes + `)::int) OVER urgency AS upto
        FROM candidate
        WHERE inputs_bytes <= ` + maxInputBytes + `
        WINDOW urgency AS (ORDER BY ` + o.by + ` ROWS UNBOUNDED PRECEDING)
    ) c
    WHERE c.place = 1 OR c.upto <= ` + b.bytesSQL("$7::bigint") + ` * $8::int / $3::int
    GROUP BY ` + o.group + `
    ORDER BY min(c.place)
),
locked AS MATERIALIZED (
    SELECT e.*
    FROM wanted w
    CROSS JOIN LATERAL (
        SELECT s.ctid AS ready_row, s.task_uuid, s.step_uuid, s.priority, s.state_since, s.inputs_bytes
        FROM tasker.ready_steps s
        WHERE s.namespace = w.namespace AND s.handler = w.handler` + o.levelSQL("w") + `
          AND s.inputs_bytes <= ` + maxInputBytes + ` AND s.step_uuid <> ALL ($6::uuid[])` + h.free("s", o.gates) + `
        ORDER BY s.priority DESC, s.state_since
        LIMIT w.steps
        FOR NO KEY UPDATE SKIP LOCKED
    ) e
    LIMIT ` + b.stepsSQL("$3::int") + `
),
`
}

// manyQueues is the maximum number of queues that a claim reads individually.
const manyQueues = 200

// claimStatement returns the statement with which the claimant claims steps, and its arguments.
func (c Claimant) claimStatement(limit, budget, depth int, l claimMode) (sql string, args []any) {
	args = []any{c.Namespaces, c.Handlers, limit, c.WorkerUUID, c.Lease, nonNil(c.Without), budget}
	if r := l.heads; r != nil {
		turns, shares := l.turn.turnsAndShares(c.Namespaces)
		args = append(args, depth, turns, shares, r.namespaces, r.handlers, r.low, r.high, r.since, l.turn.minAge())
		if l.direct {
			return claimMoreFromHeads, args
		}
		return l.buildStatement(claimFromHeads, claimUnheldFromHeads, args)
	}
	queues := len(c.Namespaces) * len(c.Handlers)
	if queues > 1 || l.turn.ordersByAge() {
		args = append(args, depth)
	}
	variant := claimVariant{&byUrgency, queues > manyQueues}
	if l.turn != nil {
		variant.order = &byTurn
		args = append(args, l.turn.turns, l.turn.shares)
	}
	switch {
	case l.direct && queues == 1:
		return claimMoreSteps, args
	case l.direct:
		return claimMoreOfSeveral, args
	case l.turn.ordersByAge():
		variant.order = &byAge
		args = append(args, l.turn.age)
	case queues == 1:
		return l.buildStatement(claimSteps, claimUnheldSteps, args)
	}
	statement := claimOfSeveral[variant]
	return l.buildStatement(statement.plain, statement.unheld, args)
}

// buildStatement returns one of two statements: plain, or asks, which checks each step and has one more
// argument.
func (l claimMode) buildStatement(plain, asks string, args []any) (sql string, all []any) {
	if l.asks {
		return asks, append(args, l.gates)
	}
	return plain, args
}

// nonNil replaces nil with an empty slice, since pgx sends nil as NULL.
func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Claimant describes a worker that claims steps.
type Claimant struct {
	WorkerUUID tasker.ID
	Namespaces []string
	Handlers   []string
	Lease      time.Duration
	Without    []tasker.ID // steps to exclude
	Version    string      // version of the worker
}

// If other claims hold too many locks, a claim is repeated up to claimRetries times. Each time it
// reads depthFactor times as many steps.
const (
	depthFactor  = 4
	claimRetries = 3
)

// ClaimSteps leases up to limit enqueued steps, most urgent first. The total size of their inputs
// is at most [tasker.MaxClaimBytes], but a single step always fits.
func (db *DB) ClaimSteps(ctx context.Context, c Claimant, limit int) (ClaimResult, error) {
	return db.claimSteps(ctx, c, limit, tasker.MaxClaimBytes)
}

func (db *DB) claimSteps(ctx context.Context, c Claimant, limit, budget int) (ClaimResult, error) {
	var all ClaimResult
	depth := limit
	for retries := 0; ; retries++ {
		next, err := db.claimOnce(ctx, c, claimSize{limit - len(all.Steps), budget - all.bytes, depth})
		if err != nil && len(all.Steps) > 0 {
			return all, nil // these steps are already leased; the next claim will return the error
		}
		if err != nil {
			return ClaimResult{}, err
		}
		all.add(next)
		if !next.busy || retries == claimRetries || len(all.Steps) >= limit || all.bytes >= budget {
			return all, nil
		}
		depth *= depthFactor
	}
}

// claimSize contains the limits of a claim: steps, bytes of inputs, and steps to read per queue.
type claimSize struct{ limit, budget, depth int }

func (db *DB) claimOnce(ctx context.Context, c Claimant, size claimSize) (ClaimResult, error) {
	turn, err := db.fairOrderFor(ctx, c)
	if err != nil {
		return ClaimResult{}, err
	}
	result, err := db.claimCheckingHolds(ctx, c.Version, func(l claimMode) (ClaimResult, error) {
		l.turn, l.heads = turn, db.heads.rangesFor(c)
		if !db.limits.mayHaveLimits(c) {
			sql, args := c.claimStatement(size.limit, size.budget, size.depth, l)
			if result, err := db.runClaim(ctx, sql, args); err != nil || !result.limited {
				return result, err
			}
			db.limits.recordSeen(c)
		}
		return db.claimLimited(ctx, c, size, l)
	})
	if err == nil {
		db.recordClaim(turn, result)
	}
	return result, err
}

// ExtendLeases extends the leases that a worker still holds, records its heartbeat and reports
// whether it is draining. A lease lasts at least as long as the registration of the worker
// promised. The result omits lost leases. It returns NotFound if the worker is unknown.
func (db *DB) ExtendLeases(
	ctx context.Context, worker tasker.ID, lease time.Duration, leases []tasker.Lease,
) (extended []tasker.LeaseExtension, drains bool, err error) {
	err = retry(ctx, func() error {
		var promised time.Duration
		err := db.pool.QueryRow(ctx, statement("recordHeartbeat"), worker).Scan(&drains, &promised)
		if errors.Is(err, pgx.ErrNoRows) {
			return newUnknownWorkerError(worker)
		}
		if err != nil {
			return err
		}
		if len(leases) == 0 {
			extended = nil
			return nil
		}
		tasks, steps, fences := toLeaseArrays(leases)
		extended, err = collect[tasker.LeaseExtension](ctx, db.pool, statement("extendLeases"), tasks, steps, fences, worker, max(lease, promised))
		return err
	})
	return extended, drains, wrapError(err, "extend leases")
}

// ReleaseSteps releases leases of a worker. It returns the steps whose leases it still held.
func (db *DB) ReleaseSteps(ctx context.Context, worker tasker.ID, leases []tasker.Lease) ([]tasker.ID, error) {
	tasks, steps, fences := toLeaseArrays(leases)
	var released []tasker.ID
	err := retry(ctx, func() (err error) {
		released, err = collectColumn[tasker.ID](ctx, db.pool, statement("releaseSteps"), tasks, steps, fences, worker, db.queue.ttlMS, db.queue.announce)
		return err
	})
	return released, wrapError(err, "release steps")
}

func toLeaseArrays(leases []tasker.Lease) (tasks, steps []tasker.ID, fences []int64) {
	for _, l := range leases {
		tasks = append(tasks, l.TaskUUID)
		steps = append(steps, l.StepUUID)
		fences = append(fences, l.Fence)
	}
	return tasks, steps, fences
}

func newUnknownWorkerError(id tasker.ID) error {
	return tasker.Errorf(tasker.NotFound, "worker %s is not registered: register again", id)
}
