package overload

import (
	"net/netip"
	"sync"
	"time"
)

// maxBuckets is how many callers are remembered, twice: those before them are forgotten
// and begin anew.
const maxBuckets = 10_000

// burst is how many seconds' worth of requests may come at the same time.
const burst = 2

// A Rate limits requests per second of each caller or address; nil allows all.
type Rate struct {
	perSecond float64
	now       func() time.Time

	mu            sync.Mutex
	recent, older map[string]*bucket
}

// A bucket has the requests that are allowed at an instant.
type bucket struct {
	left float64
	at   time.Time
}

// NewRate returns a rate that nobody has used yet; nil for one of 0.
func NewRate(perSecond float64, now func() time.Time) *Rate {
	if perSecond <= 0 {
		return nil
	}
	if now == nil {
		now = time.Now
	}
	return &Rate{perSecond: perSecond, now: now, recent: map[string]*bucket{}}
}

// Address takes one request of an address, see [Network], or returns a [Refusal].
func (r *Rate) Address(from netip.Addr) error { return addressRefusal(r.take(Network(from).String())) }

// Spent returns what [Rate.Address] would return now, and takes nothing.
func (r *Rate) Spent(from netip.Addr) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return addressRefusal(r.wait(r.bucket(Network(from).String())))
}

func addressRefusal(wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	return tooFast(wait, "too many requests come from your address without valid credentials (limits.unknown_requests_per_second)")
}

// Network returns what counts as one address: of IPv6 each site has very many.
func Network(from netip.Addr) netip.Prefix {
	from = from.Unmap().WithZone("")
	bits := from.BitLen()
	if from.Is6() {
		bits = 64
	}
	p, err := from.Prefix(bits)
	if err != nil {
		return netip.Prefix{}
	}
	return p
}

// take takes one request, or returns how long to wait for it.
func (r *Rate) take(name string) time.Duration {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucket(name)
	wait := r.wait(b)
	if wait == 0 {
		b.left--
	}
	return wait
}

// wait returns how long it takes until a bucket has a request.
func (r *Rate) wait(b *bucket) time.Duration {
	if b.left >= 1 {
		return 0
	}
	return max(1, time.Duration((1-b.left)/r.perSecond*float64(time.Second)))
}

// most is what a bucket holds.
func (r *Rate) most() float64 { return max(1, burst*r.perSecond) }

// bucket returns what is left for somebody now.
func (r *Rate) bucket(name string) *bucket {
	now := r.now()
	b := r.recent[name]
	if b == nil {
		if len(r.recent) >= maxBuckets {
			r.older, r.recent = r.recent, map[string]*bucket{}
		}
		if b = r.older[name]; b == nil {
			b = &bucket{left: r.most(), at: now}
		}
		r.recent[name] = b
	}
	b.left = min(b.left+now.Sub(b.at).Seconds()*r.perSecond, r.most())
	b.at = now
	return b
}
