package postgres

import (
	"bytes"
	"cmp"
	"iter"
	"slices"
	"time"

	"tasker.example/tasker"
)

// A candidate is an enqueued step that a claim with limits may lease.
type candidate struct {
	tasker.StepRef
	QueueName
	Priority   int
	StateSince time.Time
	DueAt      *time.Time
	Bytes      int   // size of its inputs
	Old        bool  // precedes more urgent steps, because it has waited long
	Parked     int64 // key under which the step is parked; 0 if it is ready
	Needs      []neededSlots
}

// neededSlots contains a key and the number of its slots that a step takes.
type neededSlots struct {
	key    int64
	weight int
}

// keySlots describes a key that a claim has locked.
type keySlots struct {
	free  int
	most  int           // maximum number of slots that a step can take
	retry time.Duration // time until a rate frees the next slot; 0 if that is unknown
}

// An admission decides which candidates a claim leases. Candidates are considered by turn of their
// namespaces and, within a namespace, old ones first and then by urgency. A step is admitted if all
// its keys have enough free slots.
//
// A heavy step for which a key has some free slots, but too few, reserves this key against less
// urgent steps. A step that finds a full key reserves nothing, because it could wait for long.
type admission struct {
	limit, budget int // maximum number of steps and size of their inputs
	keys          map[int64]keySlots
	turns         map[string]namespaceTurn // by namespace; others have turn 0 and share 1
}

type namespaceTurn struct{ turn, share float64 }

// A verdict contains the result of an admission. Candidates with a key that is not locked, and those after
// the last admitted one, are undecided.
type verdict struct {
	admitted []*candidate
	refused  []refusedStep
	unlocked bool // a candidate has a key that is not locked
	old      bool // an old step precedes a more urgent one
}

// A refusedStep is a candidate with the key that blocks it.
type refusedStep struct {
	*candidate
	key int64
}

// decide decides about the candidates. It does not change its arguments.
func (a admission) decide(list []*candidate) (v verdict) {
	free := make(map[int64]int, len(a.keys))
	for key, slots := range a.keys {
		free[key] = slots.free
	}
	reserved := map[int64]*candidate{}
	size := 0
	for c, take := range a.inOrder(list) {
		if len(v.admitted) == a.limit || size+c.Bytes > a.budget {
			break
		}
		if a.isUnlocked(c) {
			v.unlocked = true
			continue
		}
		key, blocked := a.findBlocking(c, free, reserved)
		if blocked {
			v.refused = append(v.refused, refusedStep{c, key})
			continue
		}
		for _, n := range c.Needs {
			free[n.key] -= a.weight(n)
		}
		size += c.Bytes
		v.admitted = append(v.admitted, c)
		take()
	}
	v.old = slices.ContainsFunc(v.admitted, func(c *candidate) bool {
		return c.Old && slices.ContainsFunc(list, func(o *candidate) bool { return o.Namespace == c.Namespace && o.Priority > c.Priority })
	})
	return v
}

// weight returns how many slots of a locked key a step takes, at most as many as the limit allows.
func (a admission) weight(n neededSlots) int { return min(n.weight, a.keys[n.key].most) }

func (a admission) isUnlocked(c *candidate) bool {
	return slices.ContainsFunc(c.Needs, func(n neededSlots) bool {
		_, locked := a.keys[n.key]
		return !locked
	})
}

// findBlocking returns the first key that blocks a candidate. The candidate reserves the keys that
// have some free slots, but too few, unless another one is full.
func (a admission) findBlocking(c *candidate, free map[int64]int, reserved map[int64]*candidate) (key int64, blocked bool) {
	full := false
	var scarce []int64
	for _, n := range c.Needs {
		lacks := free[n.key] < a.weight(n)
		if r := reserved[n.key]; (lacks || r != nil && compareUrgency(r, c) < 0) && !blocked {
			key, blocked = n.key, true
		}
		if full = full || free[n.key] <= 0; lacks {
			scarce = append(scarce, n.key)
		}
	}
	if full {
		return key, blocked
	}
	for _, k := range scarce {
		if r := reserved[k]; r == nil || compareUrgency(c, r) < 0 {
			reserved[k] = c
		}
	}
	return key, blocked
}

// inOrder returns an iterator over the candidates. Its second value must be called if the candidate
// is admitted, which is then counted as a turn of its namespace.
func (a admission) inOrder(list []*candidate) iter.Seq2[*candidate, func()] {
	return func(yield func(*candidate, func()) bool) {
		waiting := map[string][]*candidate{}
		for _, c := range list {
			waiting[c.Namespace] = append(waiting[c.Namespace], c)
		}
		turns := make(map[string]float64, len(waiting))
		for namespace, of := range waiting {
			slices.SortFunc(of, compareCandidates)
			turns[namespace] = a.turns[namespace].turn
		}
		for len(waiting) > 0 {
			var next *candidate
			for namespace, of := range waiting {
				if next == nil || cmp.Or(cmp.Compare(turns[namespace], turns[next.Namespace]), compareCandidates(of[0], next)) < 0 {
					next = of[0]
				}
			}
			take := func() { turns[next.Namespace] += a.shareOf(next.Namespace) }
			if !yield(next, take) {
				return
			}
			if waiting[next.Namespace] = waiting[next.Namespace][1:]; len(waiting[next.Namespace]) == 0 {
				delete(waiting, next.Namespace)
			}
		}
	}
}

func (a admission) shareOf(namespace string) float64 {
	if t, ok := a.turns[namespace]; ok {
		return t.share
	}
	return 1
}

// compareCandidates orders the candidates of a namespace.
func compareCandidates(a, b *candidate) int {
	switch {
	case a.Old && b.Old:
		return cmp.Or(a.StateSince.Compare(b.StateSince), compareUrgency(a, b))
	case a.Old:
		return -1
	case b.Old:
		return 1
	}
	return compareUrgency(a, b)
}

// compareUrgency orders steps by priority, due time and age.
func compareUrgency(a, b *candidate) int {
	return cmp.Or(
		cmp.Compare(b.Priority, a.Priority), compareDue(a.DueAt, b.DueAt), a.StateSince.Compare(b.StateSince),
		bytes.Compare(a.StepUUID[:], b.StepUUID[:]),
	)
}

// compareDue orders due times. Steps without one come last.
func compareDue(a, b *time.Time) int {
	switch {
	case a != nil && b != nil:
		return a.Compare(*b)
	case a != nil:
		return -1
	case b != nil:
		return 1
	}
	return 0
}
