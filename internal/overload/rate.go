package overload

import (
	"net/netip"
	"sync"
	"time"
)

// maxBuckets is the maximum number of callers in each of the two generations. Older callers are
// forgotten.
const maxBuckets = 10_000

// burst is the number of seconds whose requests a caller may send at once.
const burst = 2

// Rate limits the requests per second of each caller or address. A nil Rate allows all requests.
type Rate struct {
	perSecond float64
	now       func() time.Time

	mu            sync.Mutex
	recent, older map[string]*bucket
}

// bucket is a token bucket.
type bucket struct {
	tokens float64
	at     time.Time
}

// NewRate returns a rate limit, or nil if perSecond is 0.
func NewRate(perSecond float64, now func() time.Time) *Rate {
	if perSecond <= 0 {
		return nil
	}
	if now == nil {
		now = time.Now
	}
	return &Rate{perSecond: perSecond, now: now, recent: map[string]*bucket{}}
}

// TakeAddress counts a request from an address, see [Network]. It returns a [Refusal] if there were
// too many.
func (r *Rate) TakeAddress(from netip.Addr) error {
	return newAddressRefusal(r.takeToken(Network(from).String()))
}

// CheckAddress returns the result of [Rate.TakeAddress] without counting a request.
func (r *Rate) CheckAddress(from netip.Addr) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return newAddressRefusal(r.waitTime(r.bucketFor(Network(from).String())))
}

func newAddressRefusal(wait time.Duration) error {
	if wait <= 0 {
		return nil
	}
	return newRateRefusal(wait, "too many requests without valid credentials from your address (limits.unknown_requests_per_second)")
}

// Network returns the network that is limited as one address: a /64 for IPv6.
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

// takeToken counts a request and returns 0. If there were too many, it returns how long to wait.
func (r *Rate) takeToken(name string) time.Duration {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.bucketFor(name)
	wait := r.waitTime(b)
	if wait == 0 {
		b.tokens--
	}
	return wait
}

// waitTime returns the time until a bucket has a token, or 0 if it has one now.
func (r *Rate) waitTime(b *bucket) time.Duration {
	if b.tokens >= 1 {
		return 0
	}
	return max(1, time.Duration((1-b.tokens)/r.perSecond*float64(time.Second)))
}

func (r *Rate) capacity() float64 { return max(1, burst*r.perSecond) }

// bucketFor returns the refilled bucket of a caller.
func (r *Rate) bucketFor(name string) *bucket {
	now := r.now()
	b := r.recent[name]
	if b == nil {
		if len(r.recent) >= maxBuckets {
			r.older, r.recent = r.recent, map[string]*bucket{}
		}
		if b = r.older[name]; b == nil {
			b = &bucket{tokens: r.capacity(), at: now}
		}
		r.recent[name] = b
	}
	b.tokens = min(b.tokens+now.Sub(b.at).Seconds()*r.perSecond, r.capacity())
	b.at = now
	return b
}
