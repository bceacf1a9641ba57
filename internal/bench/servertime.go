package bench

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// serverTime is the CPU time that server processes have used, as far as they run
// on this machine and it is Linux.
func serverTime(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err != nil || !strings.HasPrefix(string(name), "postgres") {
			continue // another machine's
		}
		times, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		var running int64
		if err == nil {
			_, err = fmt.Sscan(string(times), &running)
		}
		if err == nil {
			sum += time.Duration(running)
		}
	}
	return sum
}
