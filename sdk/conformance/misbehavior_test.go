package main

import (
	"os"
	"regexp"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker/sdk/conformance/cases"
)

// Each misbehavior of a small worker fails the case of its rule; without one, the case passes.
func TestMisbehaviorIsFound(t *testing.T) {
	var running sync.WaitGroup
	defer running.Wait()
	for misbehavior, name := range map[string]string{
		"does not repeat reports":         "report-lost-response-is-repeated",
		"believes each status 200":        "report-foreign-200-is-repeated",
		"turns 413 pages into failures":   "report-foreign-413-is-repeated",
		"retries at once":                 "outage-503-is-no-hot-loop",
		"sends no heartbeats":             "lease-is-extended",
		"ignores lost leases":             "lease-lost-stops-the-handler",
		"registers again after each 404":  "registration-foreign-404-is-not-unknown",
		"retries a refused start":         "registration-forbidden-is-final",
		"ignores Retry-After":             "claim-retry-after",
		"changes the lease token":         "lease-token-is-returned-unchanged",
		"claims more than its free slots": "claim-within-free-slots",
		"sends unknown fields":            "failure-is-retryable",
	} {
		running.Go(func() {
			if failure := runSmall(t, name, "none"); failure != "" {
				t.Errorf("without misbehavior, the small worker fails the case %s: %s", name, failure)
			}
			failure := runSmall(t, name, misbehavior)
			if failure == "" {
				t.Errorf("a worker that %s passes the case %s", misbehavior, name)
			}
			t.Logf("%s: %s", misbehavior, failure)
		})
	}
}

// runSmall runs a case with the small worker and returns why it failed.
func runSmall(t *testing.T, name, misbehavior string) string {
	t.Helper()
	selected := selectCases(regexp.MustCompile("^" + name + "$"))
	if len(selected) != 1 {
		t.Fatalf("there is no case %s", name)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := cases.Options{
		Command: []string{self}, Env: []string{misbehaviorEnv + "=" + misbehavior, "GORACE=atexit_sleep_ms=0"}, Patience: 5 * time.Second,
	}
	return cases.Execute(t.Context(), selected[0], o).Failure
}
