package e2e

import (
	"flag"
	"testing"
	"time"

	"tasker.example/tasker/internal/mqtest"
)

// away is how long the broker is down; `make soak` has it away for a minute.
var away = flag.Duration("away", 4*time.Second, "how long the message broker is down")

// ripening is the age from which a queue survives a crash: RabbitMQ writes the
// list of them to disk some seconds late, and later on a loaded machine.
const ripening = 20 * time.Second

// The broker is stopped in the middle of workflows and stays away for a while. Work goes on. If it is
// away for a minute, as in `make soak`, it also crashes before.
func TestWorkContinuesWithoutTheBroker(t *testing.T) {
	t.Parallel()
	own := mqtest.Start(t)
	f := newFleet(t, own.URL, own.URL)
	f.work(4, own.URL)
	f.awaitListeners()
	if *away >= time.Minute {
		f.crash(own)
	}
	f.create(100)
	f.awaitMiddle()
	own.Stop(t)
	stopped := time.Now()
	f.create(50)
	f.awaitAll() // without the broker
	for time.Since(stopped) < *away {
		f.create(10)
		f.awaitAll()
	}
	f.create(50)
	own.Restart(t)
	f.create(50)
	f.awaitListeners()
	f.awaitAll()
	f.finish()
	t.Logf("%d workflows", f.created)
}

// crash kills the broker in the middle of workflows, when its queues survive that.
func (f *fleet) crash(own *mqtest.Broker) {
	f.Helper()
	for ripe := time.Now().Add(ripening); time.Now().Before(ripe); {
		f.create(1)
		f.awaitAll()
	}
	f.create(700)
	f.awaitMiddle()
	own.Kill(f.T)
	f.create(200)
	own.Restart(f.T)
	f.awaitListeners()
}

// The connections to the broker are cut, and stand still: those of the workers, then those of the
// server.
func TestWorkSurvivesCutBrokerConnections(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"workers", "server"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			proxy := mqtest.Proxy(t, mqtest.URL(t))
			server, workers := mqtest.URL(t), proxy.URL
			if side == "server" {
				server, workers = workers, server
			}
			f := newFleet(t, mqtest.URL(t), server)
			f.work(2, workers)
			f.awaitListeners()
			f.create(100)
			f.awaitMiddle()
			proxy.Cut()
			f.create(50)
			f.awaitMiddle()
			proxy.Restore(t)
			f.awaitListeners()
			f.create(100)
			f.awaitMiddle()
			proxy.Freeze()
			f.create(50)
			f.awaitAll() // the others do not see it, and the silent broker is given up
			f.create(50)
			proxy.Thaw()
			f.awaitAll()
			f.awaitListeners()
			f.finish()
		})
	}
}
