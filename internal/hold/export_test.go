package hold

import "time"

// SetTurn sets for how long a pass goes on with one hold.
func (s *Service) SetTurn(d time.Duration) { s.turn = d }
