package dispatch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

// A race has every step taken and expired at once, by whoever can do so.
type race struct {
	*testing.T
	db      *postgres.DB
	engine  *engine.Engine
	worker  tasker.ID
	heat    int // that runs
	mu      sync.Mutex
	claimed []tasker.ID
	expired []tasker.ID
}

// A side tries to win some steps, and notes which it was given.
type side func(*race, []tasker.StepRef)

const (
	raceSpace = "shop"
	raceRound = 200 // steps that are prepared together
	raceSome  = 5   // steps that one call is about, at most
)

// Expiry races a start ten thousand times, on both paths: exactly one side wins
// each time, and says so.
func TestExpiryRacesAStart(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		races int
		heat  int // steps that are raced for together
		sides []side
	}{
		{name: "a dead letter and a message", races: 5000, heat: 10, sides: []side{(*race).deadLetters, (*race).take}},
		{name: "the sweep and a claim", races: 2600, heat: raceRound, sides: []side{(*race).sweep, (*race).claim}},
		{name: "all of them", races: 2400, heat: raceRound, sides: []side{(*race).deadLetters, (*race).take, (*race).sweep, (*race).claim}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			rounds := tt.races / raceRound
			if testing.Short() {
				rounds /= 10
			}
			r := newRace(t)
			for range rounds {
				for some := range slices.Chunk(r.prepare(), tt.heat) {
					r.heat++
					var all sync.WaitGroup
					for _, side := range tt.sides {
						all.Go(func() { side(r, some) })
					}
					all.Wait()
				}
			}
			r.judge(rounds * raceRound)
		})
	}
}

func newRace(t *testing.T) *race {
	t.Helper()
	d := pgtest.New(t)
	d.CheckAtEnd(t)
	db, err := postgres.Open(t.Context(), d.URL, postgres.Options{Announce: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	r := &race{T: t, db: db, engine: engine.New(db, engine.Options{Queues: engine.QueueOptions{MaxExpiries: 1000}, Leases: engine.LeaseOptions{ReconnectGrace: -1}})}
	_, _, err = r.engine.RegisterTemplate(t.Context(), tasker.Template{Namespace: raceSpace, Name: "only", Version: "1.0.0", Steps: []tasker.StepTemplate{
		{Name: "only", Type: tasker.StandardStep, Handler: tasker.Handler{Callable: "run"}, Retry: tasker.DefaultRetry()},
	}}, "")
	r.must(err)
	registered, err := r.engine.RegisterWorker(t.Context(), tasker.WorkerSpec{Name: "races", Namespaces: []string{raceSpace}, Handlers: []string{"run"}, MaxConcurrency: 10_000})
	r.must(err)
	r.worker = registered.WorkerUUID
	return r
}

// admin is the database for what the test itself prepares and examines.
func (r *race) admin() *pgxpool.Pool {
	r.Helper()
	return pgtest.Admin(r, r.db.Pool().Config().ConnString())
}

func (r *race) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// prepare enqueues steps whose time is over.
func (r *race) prepare() []tasker.StepRef {
	r.Helper()
	_, err := r.engine.CreateTasks(r.Context(), slices.Repeat([]tasker.NewTask{{Namespace: raceSpace, Name: "only"}}, raceRound))
	r.must(err)
	rows, err := r.admin().Query(r.Context(), `
		UPDATE tasker.workflow_steps SET expires_at = clock_timestamp() WHERE expires_at IS NOT NULL RETURNING task_uuid, step_uuid`)
	r.must(err)
	steps, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tasker.StepRef])
	r.must(err)
	return steps
}

// note adds what a side has won.
func (r *race) note(list *[]tasker.ID, won []tasker.ID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*list = append(*list, won...)
	if err != nil {
		r.Error(err)
	}
}

func (r *race) context() context.Context { return context.WithoutCancel(r.Context()) }

// deadLetters hands in a dead letter of each step, as the server does when the broker has given
// them up. Every second time it begins with the last of them: the others are always ahead otherwise
// where a statement takes long.
func (r *race) deadLetters(steps []tasker.StepRef) {
	if r.heat%2 == 0 {
		steps = slices.Clone(steps)
		slices.Reverse(steps)
	}
	for some := range slices.Chunk(steps, raceSome) {
		letters := make([]engine.DeadLetter, len(some))
		for i, s := range some {
			letters[i] = engine.DeadLetter{StepRef: s, Evidence: json.RawMessage(`{"deaths": []}`)}
		}
		done, err := r.engine.DeadLetters(r.context(), letters)
		if len(done.Again) > 0 {
			r.Errorf("%d steps past their time are announced again", len(done.Again))
		}
		expired := make([]tasker.ID, len(done.Expired))
		for i, s := range done.Expired {
			expired[i] = s.StepUUID
		}
		r.note(&r.expired, expired, err)
	}
}

// take claims each step, as a worker does whom the broker told of it.
func (r *race) take(steps []tasker.StepRef) {
	for s := range slices.Chunk(steps, raceSome-2) {
		list, err := r.engine.TakeSteps(r.context(), r.worker, s)
		r.note(&r.claimed, idsOf(list), err)
	}
}

// sweep expires whatever there is, until there is nothing.
func (r *race) sweep([]tasker.StepRef) {
	for n, err := 1, error(nil); n > 0 && err == nil; {
		n, err = r.engine.ExpireSteps(r.context())
		r.note(&r.expired, nil, err)
	}
}

// claim claims whatever there is, as a worker does who asks, until there is nothing: one at a time
// to five, in turn, because a claim of five is always ahead of the sweep where a statement takes long.
func (r *race) claim([]tasker.StepRef) {
	for n := 1; n > 0; {
		list, err := r.engine.Claim(r.context(), r.worker, 1+r.heat%raceSome, 0)
		r.note(&r.claimed, idsOf(list), err)
		n = len(list)
	}
}

func idsOf(list []tasker.Assignment) []tasker.ID {
	out := make([]tasker.ID, len(list))
	for i, a := range list {
		out[i] = a.StepUUID
	}
	return out
}

// judge wants one winner of each race: in what the sides were told, in the state of
// the steps, and in their history. The sweep is not told what it won.
func (r *race) judge(races int) {
	r.Helper()
	rows, err := r.admin().Query(r.Context(), `
		SELECT s.step_uuid, s.state, array_agg(x.event ORDER BY x.transition_id) AS events
		FROM tasker.workflow_steps s JOIN tasker.workflow_step_transitions x USING (task_uuid, step_uuid)
		GROUP BY s.step_uuid, s.state`)
	r.must(err)
	type outcome struct {
		StepUUID tasker.ID
		State    string
		Events   []string
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByName[outcome])
	r.must(err)
	claimed, expired := r.once("claimed", r.claimed), r.once("expired", r.expired)
	claims := 0
	for _, o := range list {
		switch is := fmt.Sprint(o.State, o.Events); is {
		case "in_progress[enqueue claim]":
			claims++
			if !claimed[o.StepUUID] || expired[o.StepUUID] {
				r.Errorf("step %s was claimed; its claimant was told so: %t, a dead letter expired it: %t", o.StepUUID, claimed[o.StepUUID], expired[o.StepUUID])
			}
		case "error[enqueue expire]":
			if claimed[o.StepUUID] {
				r.Errorf("step %s has expired, and was handed to a worker", o.StepUUID)
			}
		default:
			r.Errorf("step %s is %s", o.StepUUID, is)
		}
	}
	if len(list) != races || len(claimed) != claims {
		r.Errorf("%d races, want %d; %d steps are claimed, %d were handed out", len(list), races, claims, len(claimed))
	}
	if claims == 0 || claims == races {
		r.Errorf("the start won %d of %d: there was no race", claims, races)
	}
	r.Logf("%d races: the start won %d, the expiry %d", races, claims, races-claims)
}

// once makes a set of steps each of which is there once.
func (r *race) once(what string, list []tasker.ID) map[tasker.ID]bool {
	r.Helper()
	set := make(map[tasker.ID]bool, len(list))
	for _, id := range list {
		if set[id] {
			r.Errorf("step %s was %s twice", id, what)
		}
		set[id] = true
	}
	return set
}
