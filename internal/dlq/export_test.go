package dlq

import "time"

// SweepFor is how long a pass of the sweep begins another batch.
const SweepFor = sweepFor

// SetPass sets how long a pass of the sweep begins another batch.
func (s *Service) SetPass(d time.Duration) { s.pass = d }
