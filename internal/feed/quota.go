package feed

import (
	"net/netip"

	"tasker.example/tasker"
)

// A quota limits concurrent readers. Its owner guards it.
type quota struct {
	max, share int // in total; for each address and each caller
	readers    int
	from       map[netip.Prefix]int // readers by address
	of         map[string]int       // readers by caller; empty without authentication
}

func newQuota(o Options) quota {
	return quota{max: o.MaxReaders, share: o.MaxShare, from: map[netip.Prefix]int{}, of: map[string]int{}}
}

// enter counts a reader. It returns Unavailable if there are too many.
func (q *quota) enter(address netip.Prefix, subject string) error {
	if q.readers >= q.max {
		return tasker.Errorf(tasker.Unavailable,
			"the limit of %d readers of this server's feed is reached: try again later", q.max)
	}
	const share = "this server's feed already has %d readers %s, which is the limit for one %s: try again later"
	if q.from[address] >= q.share {
		return tasker.Errorf(tasker.Unavailable, share, q.share, "from "+address.String(), "address")
	}
	if subject != "" && q.of[subject] >= q.share {
		return tasker.Errorf(tasker.Unavailable, share, q.share, "of "+subject, "caller")
	}
	q.readers++
	q.from[address]++
	q.of[subject]++
	return nil
}

// leave removes a reader that entered.
func (q *quota) leave(address netip.Prefix, subject string) {
	q.readers--
	if q.from[address]--; q.from[address] == 0 {
		delete(q.from, address)
	}
	if q.of[subject]--; q.of[subject] == 0 {
		delete(q.of, subject)
	}
}
