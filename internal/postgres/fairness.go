package postgres

import (
	"context"
	"hash/maphash"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// A fairScheduler orders the namespaces in the claims of this server by virtual time. Each claimed
// step advances its namespace by 1/weight, and the namespace with the lowest time is next. Nothing
// is stored. It also decides which claims go by age, without which a stream of urgent steps would
// starve older ones.
type fairScheduler struct {
	age time.Duration // minimum age of a step in a claim by age; negative disables such claims
	now func() time.Time

	mu      sync.Mutex
	of      map[string]*virtualTime
	weights map[string]float64 // weights other than 1
	readAt  time.Time
	byAge   map[uint64]*agingState // by a hash of the worker's queues
	seed    maphash.Seed
}

type virtualTime struct {
	at      float64
	offered time.Time // time of the last claim that included the namespace
}

// An agingState determines when the next claim by age from a set of queues is due.
type agingState struct {
	next time.Time
	old  bool // the last claim by age found an old step behind more urgent ones
}

const (
	weightsTTL    = 500 * time.Millisecond // so that a new weight applies within one second
	offerTTL      = 10 * time.Second       // a namespace that no claim has included for this long is idle
	maxRemembered = 10_000                 // maximum number of namespaces, and of sets of queues

	agingInterval = time.Second // interval of claims by age from the same queues
	agingRatio    = 8           // one in so many claims goes by age while such claims find old steps
)

func newFairScheduler(age time.Duration) fairScheduler {
	return fairScheduler{age: age, now: time.Now, of: map[string]*virtualTime{}, byAge: map[uint64]*agingState{}, seed: maphash.MakeSeed()}
}

// A fairOrderSQL is the order of the namespaces in one claim.
type fairOrder struct {
	namespaces    []string
	turns, shares []float64
	age           time.Duration // minimum age for a claim by age; 0 if the claim goes by urgency
	queues        uint64
}

func (t *fairOrder) ordersByAge() bool { return t != nil && t.age > 0 }

// ofRanges returns the turn and the share of the namespace of each range.
func (t *fairOrder) ofRanges(r *queueRanges) (turns, shares []float64) {
	turns, shares = make([]float64, len(r.namespaces)), slices.Repeat([]float64{1}, len(r.namespaces))
	if t == nil {
		return turns, shares
	}
	place := make(map[string]int, len(t.namespaces))
	for i, n := range t.namespaces {
		place[n] = i
	}
	for i, n := range r.namespaces {
		turns[i], shares[i] = t.turns[place[n]], t.shares[place[n]]
	}
	return turns, shares
}

// minAge returns the age from which a step precedes more urgent ones, or nil if the claim orders
// steps by urgency alone.
func (t *fairOrder) minAge() *time.Duration {
	if !t.ordersByAge() {
		return nil
	}
	return &t.age
}

// fairOrderFor returns the order for a new claim. It returns nil if the claim goes by urgency in a
// single namespace.
func (db *DB) fairOrderFor(ctx context.Context, c Claimant) (*fairOrder, error) {
	age, queues := db.turns.claimAge(c)
	if len(c.Namespaces) == 1 {
		if age == 0 {
			return nil, nil //nolint:nilnil // documented above
		}
		return &fairOrder{namespaces: c.Namespaces, turns: []float64{0}, shares: []float64{1}, age: age, queues: queues}, nil
	}
	if err := db.refreshWeights(ctx); err != nil {
		return nil, err
	}
	t := db.turns.startOrder(c.Namespaces)
	t.age, t.queues = age, queues
	return t, nil
}

// refreshWeights reads the weights if they are outdated. Of concurrent claims, only one reads them.
func (db *DB) refreshWeights(ctx context.Context) error {
	s := &db.turns
	s.mu.Lock()
	now := s.now()
	outdated := now.Sub(s.readAt) >= weightsTTL
	if outdated {
		s.readAt = now
	}
	s.mu.Unlock()
	if !outdated {
		return nil
	}
	list, err := db.findWeights(ctx, nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.readAt = time.Time{}
		return err
	}
	s.weights = make(map[string]float64, len(list))
	for _, w := range list {
		s.weights[w.Namespace] = w.Weight
	}
	return nil
}

// startOrder returns the turns of namespaces. A namespace that is new or was idle gets the lowest
// turn of the others.
func (s *fairScheduler) startOrder(namespaces []string) *fairOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(s.of) >= maxRemembered {
		s.forgetIdle(now)
	}
	least, known := 0.0, false
	for _, n := range namespaces {
		if v := s.of[n]; v != nil && now.Sub(v.offered) <= offerTTL && (!known || v.at < least) {
			least, known = v.at, true
		}
	}
	t := &fairOrder{namespaces: namespaces, turns: make([]float64, len(namespaces)), shares: make([]float64, len(namespaces))}
	for i, n := range namespaces {
		v := s.of[n]
		if v == nil {
			v = &virtualTime{}
			s.of[n] = v
		}
		if now.Sub(v.offered) > offerTTL {
			v.at = max(v.at, least)
		}
		v.offered = now
		t.turns[i], t.shares[i] = v.at, s.shareOf(n)
	}
	return t
}

func (s *fairScheduler) shareOf(namespace string) float64 {
	if w, ok := s.weights[namespace]; ok {
		return 1 / w
	}
	return 1
}

// forgetIdle removes idle namespaces, or all of them if too many remain.
func (s *fairScheduler) forgetIdle(now time.Time) {
	maps.DeleteFunc(s.of, func(_ string, v *virtualTime) bool { return now.Sub(v.offered) > offerTTL })
	if len(s.of) >= maxRemembered {
		clear(s.of)
	}
}

func (db *DB) recordClaim(t *fairOrder, r ClaimResult) {
	db.turns.advance(t, r)
	db.heads.addClaimed(r.Steps)
}

// advance advances namespaces by the steps that were claimed from them. A namespace that was passed
// over had no more ready steps, so it gets no credit.
func (s *fairScheduler) advance(t *fairOrder, r ClaimResult) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.byAge[t.queues]; t.ordersByAge() && state != nil {
		state.old = r.old
	}
	if len(t.namespaces) < 2 || len(r.Steps) == 0 {
		return
	}
	claimed := map[string]int{}
	for _, c := range r.Steps {
		claimed[c.Namespace]++
	}
	last := 0.0
	for i, n := range t.namespaces {
		if g := claimed[n]; g > 0 {
			last = max(last, t.turns[i]+float64(g-1)*t.shares[i])
		}
	}
	for i, n := range t.namespaces {
		if v := s.of[n]; v != nil {
			v.at = max(v.at+float64(claimed[n])*t.shares[i], last)
		}
	}
}

// repeatByAge makes the next claim from the queues go by age, because this one claimed no steps.
func (s *fairScheduler) repeatByAge(t *fairOrder) {
	if !t.ordersByAge() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.byAge[t.queues]; state != nil {
		state.next = time.Time{}
	}
}

// claimAge returns the minimum age for a claim by age, or 0 for a claim by urgency. It also returns
// a hash of the claimant's queues.
func (s *fairScheduler) claimAge(c Claimant) (age time.Duration, queues uint64) {
	if s.age < 0 {
		return 0, 0
	}
	queues = maphash.String(s.seed, c.queueKey())
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	state := s.byAge[queues]
	if state == nil {
		if len(s.byAge) >= maxRemembered {
			clear(s.byAge)
		}
		state = &agingState{next: now}
		s.byAge[queues] = state
	}
	if now.Before(state.next) && (!state.old || rand.IntN(agingRatio) > 0) {
		return 0, queues
	}
	state.next = now.Add(agingInterval)
	return s.age, queues
}
