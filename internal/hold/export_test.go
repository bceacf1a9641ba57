package hold

import "time"

// SetTurn sets for how long a pass goes on with one hold.
func (s *Service) SetTurn(d time.Duration) { s.turn = d }

// DefaultBreaker opens when ten attempts of five tasks, and four of five of all that ended,
// have failed with one cause within half a minute.
func DefaultBreaker() Breaker {
	return Breaker{Failures: 10, Tasks: 5, Share: 80, Window: 30 * time.Second}
}
