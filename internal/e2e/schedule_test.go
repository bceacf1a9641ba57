package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/client"
	"tasker.example/tasker/internal/pgtest"
)

var (
	manySchedules = flag.Int("schedules", 20, "how many schedules fire")
	allKilled     = flag.Int("kills", 1, "at how many instants all servers are killed")
	betweenFires  = flag.Duration("between", 2*time.Second, "the time between two instants of a schedule, in whole seconds that divide a minute")
	calm          = flag.Duration("calm", 2*time.Second, "for how long schedules fire before the first kill; lateness is measured then")
)

// Schedules fire, half of them at the same instants and the others spread over the time between; all
// servers are killed at instants, again and again. Each instant has one task, or is in one row that
// says why it has none.
func TestSchedulesSurviveKilledServers(t *testing.T) {
	t.Parallel()
	between := *betweenFires
	database := pgtest.New(t)
	database.CheckAtEnd(t)
	pool := database.Pool(t)
	servers := []*process{serve(t, database.URL), serve(t, database.URL)}
	c := newClient(t, servers[0].url())
	_, err := c.RegisterTemplate(t.Context(), []byte("namespace: night\nname: tick\nversion: 1.0.0\nsteps:\n  - {name: wait, type: external}\n"), client.YAML)
	must(t, err)
	for i := range *manySchedules {
		s := apiv1.CreateSchedule{By: "test", ScheduleSpec: apiv1.ScheduleSpec{
			Namespace: "night", Name: fmt.Sprintf("s%d", i), Template: "tick", Overlap: "allow", CatchUp: "all", CatchUpMax: 100,
		}}
		if i%2 == 0 {
			s.Cron = fmt.Sprintf("*/%d * * * * *", int(between/time.Second))
		} else {
			begin := time.Now().Add(time.Second + time.Duration(rand.Int64N(int64(between))))
			s.EverySeconds, s.StartAt = int64(between/time.Second), &begin
		}
		_, err := c.CreateSchedule(t.Context(), s)
		must(t, err)
	}
	measured := time.Now()
	<-time.After(*calm)
	late := lateness(t, pool, measured, time.Now())
	for range *allKilled {
		at := time.Now().Truncate(between).Add(between)
		<-time.After(time.Until(at) + rand.N(300*time.Millisecond)) // in the middle of what the instant brings
		for i, s := range servers {
			s.kill()
			servers[i] = serve(t, database.URL)
		}
		servers[0].url()
	}
	_, err = pool.Exec(t.Context(), `UPDATE tasker.schedules SET end_at = clock_timestamp() + interval '2 seconds'`)
	must(t, err)
	await(t, "the last instants", func() bool {
		return number(t, pool, `SELECT count(*) FROM tasker.schedules WHERE fire_at IS NOT NULL`) == 0
	})
	for _, s := range servers {
		s.stop()
	}
	wantInstantsOnce(t, pool, between)
	t.Logf("%d schedules every %s: %s; all servers killed at %d instants; %d instants, %d tasks, %d rows without one", *manySchedules, between, late, *allKilled,
		number(t, pool, `SELECT sum(instants) FROM tasker.schedule_firings`), number(t, pool, `SELECT count(*) FROM tasker.tasks`),
		number(t, pool, `SELECT count(*) FROM tasker.schedule_firings WHERE task_uuid IS NULL`))
}

// lateness says how late instants were fired.
func lateness(t *testing.T, pool *pgxpool.Pool, from, to time.Time) (text string) {
	t.Helper()
	must(t, pool.QueryRow(t.Context(), `
		SELECT format('%s instants in %s, late by %s ms at the median, %s ms at p99, %s ms at most', count(*), $2::timestamptz - $1, percentile_disc(0.5) WITHIN GROUP (ORDER BY late_ms),
			percentile_disc(0.99) WITHIN GROUP (ORDER BY late_ms), max(late_ms))
		FROM tasker.schedule_firings WHERE kind = 'clock' AND nominal_at BETWEEN $1 AND $2`, from, to).Scan(&text))
	return text
}

// wantInstantsOnce checks that the firings of each schedule have each instant once, from the first to
// the last, and that exactly those that started have a task.
func wantInstantsOnce(t *testing.T, pool *pgxpool.Pool, between time.Duration) {
	t.Helper()
	if n := number(t, pool, `
		SELECT count(*) FROM (
			SELECT g.*, lag(g.nominal_until) OVER (PARTITION BY g.schedule_uuid ORDER BY g.nominal_at) AS before FROM tasker.schedule_firings g
		) x WHERE x.nominal_at <> x.before + $1::interval OR x.nominal_until <> x.nominal_at + (x.instants - 1) * $1::interval`, between); n != 0 {
		t.Errorf("%d firings leave out an instant or have one twice", n)
	}
	if n := number(t, pool, `
		SELECT count(*) FROM tasker.schedules h WHERE (SELECT min(g.nominal_at) FROM tasker.schedule_firings g WHERE g.schedule_uuid = h.schedule_uuid) > h.created_at + 3 * $1::interval
			OR (SELECT max(g.nominal_until) FROM tasker.schedule_firings g WHERE g.schedule_uuid = h.schedule_uuid) < h.end_at - $1::interval`, between); n != 0 {
		t.Errorf("%d schedules lack their first or last instants", n)
	}
	if n := number(t, pool, `
		SELECT count(*) FROM tasker.tasks t FULL JOIN tasker.schedule_firings g ON g.task_uuid = t.task_uuid
		WHERE g.outcome = 'started' AND t.task_uuid IS NULL OR g.task_uuid IS NULL AND t.task_uuid IS NOT NULL OR g.outcome <> 'started' AND g.reason = ''`); n != 0 {
		t.Errorf("%d tasks without a firing, or firings without a task or a reason", n)
	}
}

func number(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	must(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}
