package worker_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/worker"
)

// While the key of a worker is replaced, or was revoked by mistake, the backend refuses whatever
// it asks. No outcome is lost by that, the log says once what is wrong, and the worker goes on
// soon after the key is accepted again.
func TestAKeyThatIsNotAcceptedCostsNoOutcome(t *testing.T) {
	for _, code := range []tasker.Code{tasker.Unauthorized, tasker.Forbidden} {
		inBubble(t, string(code), func(t *testing.T) {
			f := newFake()
			var log bytes.Buffer
			w := worker.New(f, worker.Options{
				Name: "test", Namespaces: []string{"n"}, Concurrency: 40,
				Log: slog.New(slog.NewTextHandler(&log, nil)),
			})
			w.HandleRaw("run", takes(time.Second))
			r := start(t, w)
			for range 30 {
				f.add(step("run"))
			}
			synctest.Wait()
			f.setFail(func(string) error { return tasker.Errorf(code, "not with this key") })
			elapse(time.Hour)
			if said := log.String(); strings.Count(said, "not with this key") != 1 || strings.Count(said, "level=ERROR") != 1 || !strings.Contains(said, "are kept") {
				t.Errorf("the log of an hour: %s", said)
			}
			asked := f.count("claim")
			elapse(time.Hour)
			if n := f.count("claim") - asked; n < 600 || n > 1600 { // each 2.5 to 5 s
				t.Errorf("asked for work %d times in an hour", n)
			}
			f.setFail(nil)
			elapse(20 * time.Second)
			if got := len(f.steps()); got != 30 || f.count("register") != 1 {
				t.Errorf("%d of 30 outcomes accepted, registered %d times", got, f.count("register"))
			}
			for _, o := range f.accepted {
				if !o.Success {
					t.Fatalf("a success became %+v", o.Failure)
				}
			}
			f.setFail(func(string) error { return tasker.Errorf(code, "not with this key") })
			elapse(time.Minute)
			if said := log.String(); strings.Count(said, "not with this key") != 2 || strings.Count(said, "accepts this worker's key again") != 1 {
				t.Errorf("the log at the end: %s", said)
			}
			f.setFail(nil)
			elapse(time.Minute)
			r.finish()
		})
	}
}

// At the start it is better to end than to wait: whoever starts the worker reads why.
func TestAWorkerWhoseKeyIsNotAcceptedDoesNotStart(t *testing.T) {
	for _, code := range []tasker.Code{tasker.Unauthorized, tasker.Forbidden} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			f.fail = func(string) error { return tasker.Errorf(code, "the API key is not valid") }
			err := <-start(t, newWorker(f, 1, takes(0))).end
			if tasker.CodeOf(err) != code || err.Error() != "register worker test: the API key is not valid" || f.count("register") != 1 {
				t.Errorf("after %d tries: %v", f.count("register"), err)
			}
		})
	}
}

// A worker that is at work is not ended because it was forgotten while its key is replaced.
func TestRegisteringAgainWaitsForTheKey(t *testing.T) {
	for _, code := range []tasker.Code{tasker.Unauthorized, tasker.Forbidden} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake()
			r := start(t, newWorker(f, 1, takes(0)))
			synctest.Wait()
			f.setFail(func(call string) error {
				if call == "register" {
					return tasker.Errorf(code, "not with this key")
				}
				return nil
			})
			f.forget()
			elapse(time.Minute)
			f.setFail(nil)
			f.add(step("run"))
			elapse(time.Minute)
			if got := len(f.steps()); got != 1 {
				t.Error("the worker does not work")
			}
			r.finish()
		})
	}
}
