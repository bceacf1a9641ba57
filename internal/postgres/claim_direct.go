package postgres

// A worker that reports can directly claim a step that its report makes ready, if it wants more work
// and its queues contain nothing more urgent. This takes one update instead of two and no row in
// ready_steps.
//
// Otherwise the step is enqueued. This is also the case if steps are held or may have limits,
// namespaces alternate, the claim is by age, or more steps are ready than the worker wants.

// queueFront describes what the queues of a worker contain.
type queueFront struct {
	Claims bool // the worker may claim steps directly: none is held or may have a limit
	Urgent *int // highest priority of a waiting step
}

// canClaimDirectly reports whether urgency alone determines the steps of a claim.
func (db *DB) canClaimDirectly(next *NextClaim, l claimMode) bool {
	return l.turn == nil && !l.asks && len(next.Namespaces)*len(next.Handlers) <= manyQueues && !db.limits.mayHaveLimits(next.Claimant)
}
