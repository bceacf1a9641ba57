package app_test

import (
	"strings"

	"tasker.example/tasker"
)

// attempts has so many attempts of one handler fail and succeed, each of a task of its own. The
// first fails: a server counts a handler from its first failure.
func (k *keyTest) attempts(s *server, failed, succeeded int) {
	k.Helper()
	k.create(failed + succeeded)
	r, c := k.register(s)
	for i := range failed + succeeded {
		list, err := c.Backend().Claim(k.Context(), r.WorkerUUID, 1, 0)
		k.must(err)
		if len(list) != 1 {
			k.Fatalf("%d steps are handed out", len(list))
		}
		o := tasker.Outcome{Lease: list[0].Lease(), Success: true}
		if i == 0 || i > succeeded {
			o = tasker.Outcome{Lease: list[0].Lease(), Failure: &tasker.Failure{Message: "HTTP 503", Type: "gateway", Retryable: true}}
		}
		_, err = c.Backend().Report(k.Context(), r.WorkerUUID, []tasker.Outcome{o}, 0)
		k.must(err)
	}
}

// opens starts a server whose breaker is on, and sees it open.
func (k *keyTest) opens(failed, succeeded int) {
	k.Helper()
	if k.key.Name != "breaker.enabled" {
		k.also("breaker.enabled", "true")
	}
	k.attempts(k.start(), failed, succeeded)
	k.until("breaker h", `SELECT coalesce((SELECT kind || ' ' || handler FROM tasker.holds), '')`)
}

var breakerEffects = map[string]func(*keyTest){
	"breaker.enabled": func(k *keyTest) {
		k.set("true")
		k.opens(10, 0)
	},
	"breaker.failures": func(k *keyTest) {
		k.set("6")
		k.opens(6, 0)
	},
	"breaker.tasks": func(k *keyTest) {
		k.also("breaker.failures", "3")
		k.set("3")
		k.opens(3, 0)
	},
	"breaker.share_percent": func(k *keyTest) {
		k.set("50")
		k.opens(10, 8)
	},
	"breaker.window_seconds": func(k *keyTest) {
		k.set("77")
		k.opens(10, 0)
		if why := k.one(`SELECT reason FROM tasker.holds`); !strings.Contains(why, "within 1m17s") {
			k.Errorf("it opened because of %q", why)
		}
	},
}
