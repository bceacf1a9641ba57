package postgres

import (
	"context"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tasker.example/tasker"
)

// fairScheduler schedules namespaces in the claims of this server by virtual time: each step advances its
// namespace by 1/weight, and the lowest is next. Nothing is stored. It also selects claims by age,
// without which steps behind a stream of more urgent ones would starve.
type fairScheduler struct {
	age time.Duration // negative: no claim goes by age
	now func() time.Time

	mu      sync.Mutex
	of      map[string]*virtualTime
	weights map[string]float64 // those that are not 1
	readAt  time.Time
	byAge   map[uint64]*agingState // by a hash of the queues of a worker
	seed    maphash.Seed
}

type virtualTime struct {
	at      float64
	offered time.Time // when a claim last asked for it
}

// An agingState is when claims of the same queues go by age.
type agingState struct {
	next time.Time
	old  bool // the last one found what had waited long behind what is more urgent
}

const (
	weightsFor  = 500 * time.Millisecond // for how long weights are remembered; a change must hold within a second
	unofferedAt = 10 * time.Second       // after which the turn of a namespace that no claim asked for is over
	maxTurns    = 10_000                 // namespaces, and sets of queues, that are remembered

	ageLookEvery = time.Second // at least so often claims of the same queues go by age
	ageLookOneOf = 8           // and one of so many, while these find that
)

func newTurns(age time.Duration) fairScheduler {
	return fairScheduler{age: age, now: time.Now, of: map[string]*virtualTime{}, byAge: map[uint64]*agingState{}, seed: maphash.MakeSeed()}
}

// A fairOrder is one claim.
type fairOrder struct {
	namespaces    []string
	turns, shares []float64
	age           time.Duration // positive: the claim goes by age
	queues        uint64
}

// byAge reports whether what has waited long comes first in the claim.
func (t *fairOrder) byAge() bool { return t != nil && t.age > 0 }

// of returns the turns and the shares of namespaces.
func (t *fairOrder) of(namespaces []string) (turns, shares []float64) {
	if t != nil {
		return t.turns, t.shares
	}
	return make([]float64, len(namespaces)), slices.Repeat([]float64{1}, len(namespaces))
}

// from returns from which age on what waits comes first; nil: never.
func (t *fairOrder) from() *time.Duration {
	if !t.byAge() {
		return nil
	}
	return &t.age
}

// takeTurn begins a claim. The result is nil for one of a single namespace that goes by urgency.
func (db *DB) takeTurn(ctx context.Context, c Claimant) (*fairOrder, error) {
	age, queues := db.turns.goesByAge(c)
	if len(c.Namespaces) == 1 {
		if age == 0 {
			return nil, nil //nolint:nilnil // such claims take no turns
		}
		return &fairOrder{namespaces: c.Namespaces, turns: []float64{0}, shares: []float64{1}, age: age, queues: queues}, nil
	}
	if db.turns.outdated() {
		list, err := db.weights(ctx, nil)
		if err != nil {
			db.turns.forgetRead()
			return nil, err
		}
		db.turns.weigh(list)
	}
	t := db.turns.begin(c.Namespaces)
	t.age, t.queues = age, queues
	return t, nil
}

// outdated reports whether the weights have to be read, and has one claim do so.
func (s *fairScheduler) outdated() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.readAt) >= weightsFor {
		s.readAt = now
		return true
	}
	return false
}

func (s *fairScheduler) forgetRead() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt = time.Time{}
}

func (s *fairScheduler) weigh(list []tasker.NamespaceWeight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.weights = make(map[string]float64, len(list))
	for _, w := range list {
		s.weights[w.Namespace] = w.Weight
	}
}

// begin returns the turns of namespaces. A new or idle one starts at the least of the others.
func (s *fairScheduler) begin(namespaces []string) *fairOrder {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(s.of) >= maxTurns {
		s.forget(now)
	}
	least, known := 0.0, false
	for _, n := range namespaces {
		if v := s.of[n]; v != nil && now.Sub(v.offered) <= unofferedAt && (!known || v.at < least) {
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
		if now.Sub(v.offered) > unofferedAt {
			v.at = max(v.at, least)
		}
		v.offered = now
		t.turns[i], t.shares[i] = v.at, s.share(n)
	}
	return t
}

func (s *fairScheduler) share(namespace string) float64 {
	if w, ok := s.weights[namespace]; ok {
		return 1 / w
	}
	return 1
}

// forget drops the namespaces that no claim asks for, or all if that is not enough.
func (s *fairScheduler) forget(now time.Time) {
	for n, v := range s.of {
		if now.Sub(v.offered) > unofferedAt {
			delete(s.of, n)
		}
	}
	if len(s.of) >= maxTurns {
		clear(s.of)
	}
}

// handedOut notes what a claim has handed out.
func (db *DB) handedOut(t *fairOrder, r ClaimResult) {
	db.turns.taken(t, r)
	db.heads.taken(r.Steps)
}

// taken advances the turns after a claim. A namespace passed over had nothing more waiting, and
// gets no credit for that time.
func (s *fairScheduler) taken(t *fairOrder, r ClaimResult) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if look := s.byAge[t.queues]; t.byAge() && look != nil {
		look.old = r.old
	}
	if len(t.namespaces) < 2 || len(r.Steps) == 0 {
		return
	}
	given := map[string]int{}
	for _, c := range r.Steps {
		given[c.Namespace]++
	}
	last := 0.0
	for i, n := range t.namespaces {
		if g := given[n]; g > 0 {
			last = max(last, t.turns[i]+float64(g-1)*t.shares[i])
		}
	}
	for i, n := range t.namespaces {
		if v := s.of[n]; v != nil {
			v.at = max(v.at+float64(given[n])*t.shares[i], last)
		}
	}
}

// untaken is taken of a claim that handed out nothing and left it to the next one, which goes by age in its place.
func (s *fairScheduler) untaken(t *fairOrder) {
	if t == nil || !t.byAge() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if look := s.byAge[t.queues]; look != nil {
		look.next = time.Time{}
	}
}

// goesByAge returns the minimum age of a claim by age, 0 by urgency, with a hash of its queues.
func (s *fairScheduler) goesByAge(c Claimant) (age time.Duration, queues uint64) {
	if s.age < 0 {
		return 0, 0
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, list := range [][]string{c.Namespaces, c.Handlers} {
		for _, name := range list {
			_, _ = h.WriteString(name)
			_ = h.WriteByte(0)
		}
	}
	queues = h.Sum64()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	look := s.byAge[queues]
	if look == nil {
		if len(s.byAge) >= maxTurns {
			clear(s.byAge)
		}
		look = &agingState{next: now}
		s.byAge[queues] = look
	}
	if now.Before(look.next) && (!look.old || rand.IntN(ageLookOneOf) > 0) {
		return 0, queues
	}
	look.next = now.Add(ageLookEvery)
	return s.age, queues
}
