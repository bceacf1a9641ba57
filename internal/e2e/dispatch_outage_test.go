package e2e

import (
	"flag"
	"syscall"
	"testing"
	"time"

	"tasker.example/tasker/internal/mqtest"
)

// away is how long the broker is down; `make soak` has it away for a minute.
var away = flag.Duration("away", 4*time.Second, "how long the message broker is down")

// ripening is the age from which a queue survives a crash: RabbitMQ writes the
// list of them to disk some seconds late, and later on a loaded machine.
const ripening = 20 * time.Second

// Two thousand workflows, in the middle of which the broker crashes and is
// started again, then is stopped and stays away for a while. Work goes on.
func TestTheBrokerGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	own := mqtest.Start(t)
	f := newFleet(t, fleetOptions{transport: overRabbitMQ, broker: own.URL})
	f.work(4, own.URL)
	f.awaitListeners()
	for ripe := time.Now().Add(ripening); time.Now().Before(ripe); {
		f.create(1)
		f.awaitAll()
	}

	f.create(700)
	f.awaitMiddle()
	own.Kill(t)
	f.create(200)
	own.Restart(t)
	f.awaitListeners()
	f.create(200)
	f.awaitMiddle()

	own.Stop(t)
	stopped := time.Now()
	f.create(300)
	f.awaitAll() // without the broker
	for time.Since(stopped) < *away {
		f.create(10)
		f.awaitAll()
	}
	f.create(300)
	own.Restart(t)
	f.create(300)
	f.awaitListeners()
	f.awaitAll()
	if n := f.number(`SELECT count(*) FROM tasker.tasks_dlq`); n != 0 {
		t.Errorf("%d investigations, want none: nothing has failed", n)
	}
	f.finish()
	t.Logf("%d workflows", f.created)
}

// The connections to the broker are cut, and stand still: those of the workers,
// then those of the server.
func TestTheConnectionToTheBrokerIsCut(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"workers", "server"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			proxy := mqtest.Proxy(t, mqtest.URL(t))
			o, dial := fleetOptions{transport: overRabbitMQ}, proxy.URL
			if side == "server" {
				o.dial, dial = proxy.URL, mqtest.URL(t)
			}
			f := newFleet(t, o)
			f.work(2, dial)
			f.awaitListeners()
			for range 3 {
				f.create(150)
				f.awaitMiddle()
				proxy.Cut()
				f.create(50)
				f.awaitMiddle()
				proxy.Restore(t)
			}
			f.awaitListeners()
			f.create(200)
			f.awaitMiddle()
			proxy.Freeze()
			f.create(50)
			f.awaitAll() // the others do not see it, and the silent broker is given up
			f.create(50)
			proxy.Thaw()
			f.awaitAll()
			f.awaitListeners()
			if n := f.number(`SELECT count(*) FROM tasker.tasks_dlq`); n != 0 {
				t.Errorf("%d investigations, want none: nothing has failed", n)
			}
			f.finish()
		})
	}
}

// A worker stands still for longer than its lease and then goes on as if nothing
// had happened. Its steps went to the other; what it reports late changes nothing.
func TestAWorkerThatStoodStillAppliesNothingTwice(t *testing.T) {
	t.Parallel()
	eachTransport(t, func(t *testing.T, transport string) {
		f := newFleet(t, fleetOptions{transport: transport})
		f.work(2, f.broker)
		f.awaitListeners()
		victim := f.workers[0]
		f.create(300)
		await(t, "the worker to have steps", func() bool { return f.completedBy(victim) > 20 })
		t.Cleanup(func() { _ = victim.cmd.Process.Signal(syscall.SIGCONT) })
		seen := 0
		await(t, "the worker to stand still while it has steps", func() bool {
			must(t, victim.cmd.Process.Signal(syscall.SIGSTOP))
			if f.heldBy(victim) == 0 {
				must(t, victim.cmd.Process.Signal(syscall.SIGCONT))
				if f.complete() == f.created {
					f.create(100)
				}
				seen = 0
				return false
			}
			seen++
			return seen == 5 // what it had reported before is in by now
		})
		await(t, "its leases to end", func() bool { return f.heldBy(victim) == 0 })
		f.awaitAll()
		lost := f.number(`SELECT count(*) FROM tasker.workflow_step_transitions WHERE event = 'lose'`)
		if lost == 0 {
			t.Error("no lease has ended")
		}
		before := f.completedBy(victim)

		must(t, victim.cmd.Process.Signal(syscall.SIGCONT))
		await(t, "the worker to be back", func() bool { return f.active(victim) })
		f.awaitListeners()
		f.create(300)
		f.awaitAll()
		if f.completedBy(victim) == before {
			t.Error("the worker that is back got no work")
		}
		t.Logf("it lost %d steps; %d late reports were refused", lost, f.number(`SELECT count(*) FROM tasker.rejected_reports`))
		f.finish()
	})
}

func (f *fleet) heldBy(w *process) int {
	f.Helper()
	return f.number(`
		SELECT count(*) FROM tasker.workflow_steps s JOIN tasker.workers w USING (worker_uuid)
		WHERE s.state = 'in_progress' AND w.name = $1`, workerName(w.cmd.Process.Pid))
}

func (f *fleet) completedBy(w *process) int {
	f.Helper()
	return f.number(`
		SELECT count(*) FROM tasker.workflow_step_transitions x JOIN tasker.workers w USING (worker_uuid)
		WHERE x.to_state = 'complete' AND w.name = $1`, workerName(w.cmd.Process.Pid))
}

func (f *fleet) active(w *process) bool {
	f.Helper()
	return f.number(`
		SELECT count(*) FROM tasker.workers
		WHERE name = $1 AND left_at IS NULL AND last_heartbeat_at > clock_timestamp() - heartbeat_interval`, workerName(w.cmd.Process.Pid)) > 0
}
