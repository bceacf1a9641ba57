package app_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker/internal/config"
)

// refusesTemplate registers two templates, each with its namespace, name, version and handler:
// the first one twice, and the second is refused.
func (k *keyTest) refusesTemplate(s *server, key, first, second string) {
	k.Helper()
	for i, words := range []string{first, first, second} {
		w := strings.Fields(words)
		got := k.ask(s, http.MethodPost, "/v1/templates", fmt.Sprintf(`{"namespace": %q, "name": %q, "version": %q, "steps": [{"name": "s", "handler": {"callable": %q}}]}`,
			w[0], w[1], w[2], w[3]), "")
		if want := []int{http.StatusCreated, http.StatusOK, http.StatusConflict}[i]; got.status != want || i == 2 && !strings.Contains(got.text, key) {
			k.Errorf("template %s: %d %s, want %d", words, got.status, got.text, want)
		}
	}
}

var limitEffects = map[string]func(*keyTest){
	"limits.creates": func(k *keyTest) {
		s := k.limitOne("tasker.tasks")
		k.create(1) // registers the template
		k.expectRefused(s, 3, http.MethodPost, "/v1/tasks", `{"namespace": "n", "name": "greet"}`)
	},
	"limits.pace_creates": func(k *keyTest) {
		const pace = "tasker_creates_pace_percent"
		if a := k.expectAnswer(k.start(), http.MethodGet, "/metrics", "", http.StatusOK); !strings.Contains(a.text, "\n"+pace+" 100") {
			k.Errorf("by default the metrics have no %s", pace)
		}
		k.set("false")
		k.options.Listener = nil
		if a := k.expectAnswer(k.start(), http.MethodGet, "/metrics", "", http.StatusOK); strings.Contains(a.text, "\n"+pace+" ") {
			k.Errorf("nothing is paced, and the metrics have %s", pace)
		}
	},
	"limits.bulk_creates": func(k *keyTest) {
		s := k.limitOne("tasker.tasks")
		k.create(1)
		k.expectRefused(s, 7, http.MethodPost, "/v1/tasks/bulk", `[{"namespace": "n", "name": "greet"}]`)
	},
	"limits.reads": func(k *keyTest) {
		k.expectRefused(k.limitOne("tasker.tasks"), 2, http.MethodGet, "/v1/tasks", "")
	},
	"limits.operations": func(k *keyTest) {
		s := k.limitOne("tasker.tasks")
		k.expectRefused(s, 2, http.MethodDelete, "/v1/tasks/"+k.create(1)[0].String(), "")
	},
	"limits.reports": func(k *keyTest) {
		s := k.limitOne("tasker.workers")
		r, _ := k.register(s)
		k.expectRefused(s, 13, http.MethodPost, "/v1/workers/"+r.WorkerUUID.String()+"/heartbeat", `{"leases": []}`)
	},
	"limits.claims": func(k *keyTest) {
		k.set("1")
		s := k.start()
		r, _ := k.register(s)
		path, body := "/v1/workers/"+r.WorkerUUID.String()+"/claims", `{"max": 1, "wait_ms": 5000}`
		var first sync.WaitGroup
		first.Go(func() {
			await(k.T, "a claim that waits", func() bool { return k.ask(s, http.MethodPost, path, body, "").status == http.StatusOK })
		})
		var second answer
		await(k.T, "a claim that is refused", func() bool {
			second = k.ask(s, http.MethodPost, path, `{"max": 1, "wait_ms": 0}`, "")
			return second.status == http.StatusServiceUnavailable
		})
		first.Wait()
		k.isRefusal(second)
	},
	"limits.namespaces": func(k *keyTest) {
		k.set("1")
		k.refusesTemplate(k.start(), "limits.namespaces", "a b 1.0.0 h", "c b 1.0.0 h")
	},
	"limits.templates": func(k *keyTest) {
		k.set("1")
		k.refusesTemplate(k.start(), "limits.templates", "a b 1.0.0 h", "a c 1.0.0 h")
	},
	"limits.template_versions": func(k *keyTest) {
		k.set("1")
		k.refusesTemplate(k.start(), "limits.template_versions", "a b 1.0.0 h", "a b 1.0.1 h")
	},
	"limits.handlers": func(k *keyTest) {
		k.set("1")
		k.refusesTemplate(k.start(), "limits.handlers", "a b 1.0.0 h", "a b 1.0.1 i")
	},
	"limits.workers": func(k *keyTest) {
		k.set("1")
		s := k.start()
		k.register(s)
		got := k.ask(s, http.MethodPost, "/v1/workers", `{"name": "w", "namespaces": ["m", "n"], "handlers": ["h"]}`, "")
		if got.status != http.StatusServiceUnavailable || !strings.Contains(got.text, "limits.workers") {
			k.Errorf("a second worker: %d %s", got.status, got.text)
		}
	},
	"limits.requests_per_second": func(k *keyTest) {
		k.also("auth.mode", config.AuthRequired)
		k.set("1")
		s := k.start()
		token := bootstrap(k.T, k.database.URL)
		k.expectTooFast(http.StatusOK, func() answered { return s.getWith(token, "/v1/tasks") })
	},
	"limits.unknown_requests_per_second": func(k *keyTest) {
		k.also("auth.mode", config.AuthRequired)
		k.set("1")
		s := k.start()
		token := bootstrap(k.T, k.database.URL)
		if a := s.getWith(token, "/v1/tasks"); a.status != http.StatusOK {
			k.Errorf("a caller who is known gets %d", a.status)
		}
		n := 0
		k.expectTooFast(http.StatusUnauthorized, func() answered {
			n++
			return s.getWith(fmt.Sprintf("tsk_%012d_%032d", n, n), "/v1/tasks")
		})
		if a := s.getWith(token, "/v1/tasks"); a.status != http.StatusOK {
			k.Errorf("a caller who is known, from the same address, gets %d", a.status)
		}
	},
	"limits.connections": func(k *keyTest) {
		const most = 10
		k.set(fmt.Sprint(most))
		s := k.start()
		var open []net.Conn
		for range most {
			open = append(open, k.dial(s))
		}
		k.Cleanup(func() {
			for _, c := range open {
				c.Close()
			}
		})
		closed := k.dial(s)
		defer closed.Close()
		k.must(closed.SetReadDeadline(time.Now().Add(patience)))
		if _, err := closed.Read(make([]byte, 1)); err == nil || errors.Is(err, io.ErrNoProgress) || isTimeout(err) {
			k.Errorf("the connection beyond the limit is not closed: %v", err)
		}
		open[0].Close()
		await(k.T, "room for one more", func() bool {
			c := k.dial(s)
			defer c.Close()
			_, err := fmt.Fprintf(c, "GET /health HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", c.RemoteAddr())
			k.must(c.SetReadDeadline(time.Now().Add(patience)))
			text, readErr := io.ReadAll(c)
			return err == nil && readErr == nil && strings.HasPrefix(string(text), "HTTP/1.1 200")
		})
	},
}

// expectTooFast asks until the answer is not the usual one, which must be because there
// were too many.
func (k *keyTest) expectTooFast(usual int, ask func() answered) {
	k.Helper()
	var last answered
	await(k.T, "a request that is refused", func() bool {
		last = ask()
		return last.status != usual
	})
	k.isRefusal(answer{last.status, last.text, last.header})
	if last.status != http.StatusTooManyRequests {
		k.Errorf("got %d %s, want 429", last.status, last.text)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

func (k *keyTest) dial(s *server) net.Conn {
	k.Helper()
	c, err := (&net.Dialer{}).DialContext(k.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	k.must(err)
	return c
}

// limitOne has one request of the key's class served at a time.
func (k *keyTest) limitOne(blocked string) *server {
	k.Helper()
	k.set("1")
	k.blocked = blocked
	return k.start()
}

// expectRefused sends so many requests at once while none can end, and expects some of
// them to be refused and the others to be served.
func (k *keyTest) expectRefused(s *server, count int, method, path, body string) {
	k.Helper()
	k.open()
	tx, err := k.pool.Begin(k.Context())
	k.must(err)
	_, err = tx.Exec(k.Context(), `LOCK TABLE `+k.blocked+` IN ACCESS EXCLUSIVE MODE`)
	k.must(err)
	answers := make(chan answer, count)
	for range count {
		go func() { answers <- k.ask(s, method, path, body, "") }()
	}
	refused := <-answers // the others cannot be served yet
	k.isRefusal(refused)
	if refused.status != http.StatusServiceUnavailable {
		k.Errorf("got %d %s, want 503", refused.status, refused.text)
	}
	k.must(tx.Rollback(k.Context()))
	statuses := []int{}
	for range count - 1 {
		statuses = append(statuses, (<-answers).status)
	}
	if !slices.ContainsFunc(statuses, func(status int) bool { return status < http.StatusMultipleChoices }) {
		k.Errorf("the others get %v: none was served", statuses)
	}
}

// isRefusal fails unless an answer names the key and says when to try again.
func (k *keyTest) isRefusal(a answer) {
	k.Helper()
	if !strings.Contains(a.text, k.key.Name) || !strings.Contains(a.text, "UNAVAILABLE") || a.header.Get("Retry-After") == "" {
		k.Errorf("got %d %s with Retry-After %q, want a refusal that names %s", a.status, a.text, a.header.Get("Retry-After"), k.key.Name)
	}
}
