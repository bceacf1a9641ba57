//go:build !unix

package measure

import "time"

// cpuTime returns 0, because it is not supported on this system.
func cpuTime() time.Duration { return 0 }
