package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/overload"
	"tasker.example/tasker/internal/pgtest"
	"tasker.example/tasker/internal/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness is a database with some investigations.
type harness struct {
	*testing.T
	db      *postgres.DB
	pool    *pgxpool.Pool
	entries []entry
}

type entry struct{ Task, Entry tasker.ID }

const someEntries = `
INSERT INTO tasker.task_templates (namespace, name, version, configuration, source, checksum) VALUES ('a', 'b', '1.0.0', '{}', '', '');
INSERT INTO tasker.tasks (task_uuid, template_uuid, namespace, name, version, state, state_since, context, correlation_id, created_at, updated_at)
SELECT tasker.uuid_generate_v7(), template_uuid, 'a', 'b', '1.0.0', 'complete', now(), '{}', '', now(), now()
FROM tasker.task_templates, generate_series(1, 6) n;
INSERT INTO tasker.tasks_dlq (task_uuid, original_state, dlq_reason, detail_code, detected_by, priority_at, task_snapshot, namespace, task_name, case_key)
SELECT task_uuid, 'error', 'manual_dlq', 'x', 'operator', now(), '{}', namespace, name, template_uuid FROM tasker.tasks;`

func newHarness(t *testing.T) *harness {
	t.Helper()
	d := pgtest.New(t)
	db, err := postgres.Open(t.Context(), d.URL, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	h := &harness{T: t, db: db, pool: d.Pool(t)}
	if _, err := h.pool.Exec(t.Context(), someEntries, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	rows, err := h.pool.Query(t.Context(), `SELECT task_uuid, dlq_entry_uuid FROM tasker.tasks_dlq ORDER BY dlq_entry_uuid`)
	if err != nil {
		t.Fatal(err)
	}
	if h.entries, err = pgx.CollectRows(rows, pgx.RowToStructByPos[entry]); err != nil {
		t.Fatal(err)
	}
	return h
}

type execer interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// tell writes an event and returns its position.
func (h *harness) tell(x execer, e entry) (position int64) {
	h.Helper()
	err := x.QueryRow(h.Context(), `INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data)
		VALUES ('dlq.entry.updated', $1, $2, '{}') RETURNING position`, e.Task, e.Entry).Scan(&position)
	if err != nil {
		h.Fatal(err)
	}
	return position
}

// begin starts a transaction that has its id.
func (h *harness) begin() pgx.Tx {
	h.Helper()
	tx, err := h.pool.Begin(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	if _, err := tx.Exec(h.Context(), `SELECT pg_current_xact_id()`); err != nil {
		h.Fatal(err)
	}
	return tx
}

func (h *harness) commit(tx pgx.Tx) {
	h.Helper()
	if err := tx.Commit(h.Context()); err != nil {
		h.Fatal(err)
	}
}

// all returns the positions of all events.
func (h *harness) all() []int64 {
	h.Helper()
	rows, err := h.pool.Query(h.Context(), `SELECT position FROM tasker.outbox ORDER BY position`)
	if err != nil {
		h.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		h.Fatal(err)
	}
	return list
}

func (h *harness) feed(o Options) *Feed {
	o.Every = 5 * time.Millisecond
	return New(h.db, o)
}

func (h *harness) read(f *Feed, after Cursor) *Reader {
	h.Helper()
	r, err := f.Read(h.Context(), after, here)
	if err != nil {
		h.Fatal(err)
	}
	return r
}

// next returns positions until there are n of them.
func (h *harness) next(r *Reader, n int) (positions []int64) {
	h.Helper()
	for len(positions) < n {
		list, err := r.Next(h.Context(), time.Minute)
		if err != nil || len(list) == 0 {
			h.Fatalf("got %d events and %v, want %d", len(positions), err, n)
		}
		for _, e := range list {
			positions = append(positions, e.Position)
		}
	}
	return positions
}

// settle has a reader catch up, and join the poller.
func (h *harness) settle(r *Reader) {
	h.Helper()
	if list, err := r.Next(h.Context(), 0); err != nil || len(list) > 0 {
		h.Fatalf("read %v and %v, want nothing", list, err)
	}
}

func same(t *testing.T, got, want []int64) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestPoints(t *testing.T) {
	t.Parallel()
	p := Cursor{From: 7, Before: 9, After: 12}
	if got, err := ParseCursor(p.String()); err != nil || got != p {
		t.Errorf("%s is read as %v, %v", p, got, err)
	}
	p.Database = "0123456789ab"
	if got, err := ParseCursor(p.String()); err != nil || got != p {
		t.Errorf("%s is read as %v, %v", p, got, err)
	}
	for _, text := range []string{
		"0123456789AB.1.2.3", "0123456789ab.1.2", "0123456789ab.1.2.3.4", "", "1", "1.2", "1.2.3.4", "a.2.3", "1.b.3", "1.2.c", "3.2.1", "1.2.-3", "-1.2.3", "+1.2.3", "01.2.3", "1.2.3 ", "1..3", "99999999999999999999.2.3",
	} {
		if _, err := ParseCursor(text); tasker.CodeOf(err) != tasker.Invalid {
			t.Errorf("%q: %v, want Invalid", text, err)
		}
	}
}

// A transaction that is open holds back what others wrote after it began, and
// nothing is passed over when it ends.
func TestEventsWaitForTheTransactionsBeforeThem(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	f := h.feed(Options{})
	before := h.tell(h.pool, h.entries[0])
	r := h.read(f, Cursor{})
	defer r.Close()
	same(t, h.next(r, 1), []int64{before})
	slow := h.begin()
	first := h.tell(slow, h.entries[0])
	second := h.tell(h.pool, h.entries[1])
	h.settle(r)
	if list, err := r.Next(t.Context(), 100*time.Millisecond); err != nil || len(list) > 0 {
		t.Errorf("%v, %v while a transaction is open", list, err)
	}
	h.commit(slow)
	same(t, h.next(r, 2), []int64{first, second})

	other := h.read(h.feed(Options{}), Cursor{})
	defer other.Close()
	same(t, h.next(other, 3), []int64{before, first, second})
}

// Wherever a reader stops, it goes on there, also in the middle of a part, and
// where another server divides the events otherwise.
func TestAReaderResumesAnywhere(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	a, b := h.feed(Options{Page: 2}), h.feed(Options{Page: 3})
	live := h.read(a, Cursor{})
	defer live.Close()
	h.settle(live)
	var points []Cursor
	var want []int64
	for round := range 4 {
		open := h.begin()
		h.tell(open, h.entries[0])
		for range 3 {
			h.tell(h.pool, h.entries[1])
		}
		h.tell(open, h.entries[0])
		h.commit(open)
		for len(points) < 5*(round+1) {
			list, err := live.Next(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range list {
				points = append(points, e.Point)
				want = append(want, e.Position)
			}
		}
	}
	same(t, slices.Sorted(slices.Values(want)), h.all())
	waiting := h.read(b, live.Point()) // its poller is at the end
	defer waiting.Close()
	h.settle(waiting)
	for i, p := range points {
		for name, f := range map[string]*Feed{"same": a, "other": b} {
			r := h.read(f, p)
			// Of different tasks, another server may tell in another order.
			if rest := want[i+1:]; len(rest) > 0 {
				same(t, slices.Sorted(slices.Values(h.next(r, len(rest)))), slices.Sorted(slices.Values(rest)))
			}
			if list, err := r.Next(t.Context(), 0); err != nil || len(list) > 0 {
				t.Errorf("%s server, after %s: %v, %v besides", name, p, list, err)
			}
			r.Close()
		}
	}
}

// follow reads until it has seen the position last, and goes from server to server
// every few events. It returns what it was given, in order.
func (h *harness) follow(feeds []*Feed, seed uint64, done <-chan struct{}, total func() int) []Event {
	dice := rand.New(rand.NewPCG(seed, 1))
	var got []Event
	var p Cursor
	for {
		r, err := feeds[dice.IntN(len(feeds))].Read(h.Context(), p, here)
		if err != nil {
			h.Error(err)
			return got
		}
		for stay := 1 + dice.IntN(6); stay > 0; stay-- {
			list, err := r.Next(h.Context(), time.Duration(dice.IntN(20))*time.Millisecond)
			if err != nil {
				h.Error(err)
				r.Close()
				return got
			}
			keep := len(list)
			if stay == 1 && keep > 0 {
				keep = dice.IntN(keep + 1) // the connection breaks in the middle
			}
			got = append(got, list[:keep]...)
			if len(list) > 0 && keep > 0 {
				p = list[keep-1].Point
			} else if keep == len(list) {
				p = r.Point()
			}
		}
		r.Close()
		select {
		case <-done:
			if len(got) >= total() {
				return got
			}
		default:
		}
		if h.Context().Err() != nil || h.Failed() {
			return got
		}
	}
}

// Writers commit in another order than they write, one transaction is long, readers reconnect all
// the time to one server or the other: each reads each event once, those of a task in their order.
func TestNoEventIsLostOrRepeated(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	feeds := []*Feed{h.feed(Options{Page: 3}), h.feed(Options{Page: 7}), h.feed(Options{})}
	const writers, rounds, readers = 8, 40, 6
	done := make(chan struct{})
	var results [readers][]Event
	var total int
	var following, writing sync.WaitGroup
	for i := range readers {
		following.Go(func() { results[i] = h.follow(feeds, uint64(i), done, func() int { return total }) })
	}
	long := h.begin()
	h.tell(long, h.entries[0])
	for w := range writers {
		writing.Go(func() { h.write(uint64(w), rounds) })
	}
	writing.Go(func() {
		select {
		case <-time.After(300 * time.Millisecond):
		case <-t.Context().Done():
		}
		h.commit(long)
	})
	writing.Wait()
	want := h.all()
	total = len(want)
	close(done)
	following.Wait()
	for i, got := range results {
		positions := make([]int64, len(got))
		last := map[tasker.ID]int64{}
		for j, e := range got {
			positions[j] = e.Position
			if e.Position <= last[e.TaskUUID] {
				t.Errorf("reader %d: of task %s event %d comes after %d", i, e.TaskUUID, e.Position, last[e.TaskUUID])
			}
			last[e.TaskUUID] = e.Position
		}
		slices.Sort(positions)
		same(t, positions, want)
	}
}

// write makes transactions that hold their ids for a while before and after they
// write. The events of a task are written under its lock, as the engine does.
func (h *harness) write(seed uint64, rounds int) {
	dice := rand.New(rand.NewPCG(seed, 2))
	for range rounds {
		tx, err := h.pool.Begin(h.Context())
		if err != nil {
			h.Error(err)
			return
		}
		mine := []int{1 + dice.IntN(len(h.entries)-1), 1 + dice.IntN(len(h.entries)-1)}
		slices.Sort(mine)
		_, err = tx.Exec(h.Context(), `SELECT pg_current_xact_id()`)
		for _, i := range slices.Compact(mine) {
			if err == nil {
				_, err = tx.Exec(h.Context(), `SELECT 1 FROM tasker.tasks WHERE task_uuid = $1 FOR NO KEY UPDATE`, h.entries[i].Task)
			}
			if err == nil {
				h.tell(tx, h.entries[i])
			}
		}
		if err == nil {
			_, err = tx.Exec(h.Context(), `SELECT pg_sleep($1)`, dice.Float64()*0.01)
		}
		if dice.IntN(8) == 0 {
			err = errors.Join(err, tx.Rollback(h.Context()))
		} else {
			err = errors.Join(err, tx.Commit(h.Context()))
		}
		if err != nil {
			h.Error(err)
			return
		}
	}
}

// told is how many readers the poller tells of what comes.
func (f *Feed) told() int {
	f.mu.Lock()
	p := f.poller
	f.mu.Unlock()
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.readers)
}

// A reader that does not take what it is told holds up no other, and misses nothing.
func TestASlowReaderHoldsUpNobody(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	f := h.feed(Options{Page: 1, Buffer: 2, StatementTimeout: time.Hour}) // a poller that waited for a reader would tell no other
	slow, quick := h.read(f, Cursor{}), h.read(f, Cursor{})
	defer slow.Close()
	defer quick.Close()
	h.settle(slow)
	h.settle(quick)
	var want []int64
	for range 10 {
		want = append(want, h.tell(h.pool, h.entries[0]))
	}
	same(t, h.next(quick, 10), want)
	if told := f.told(); len(slow.pages) > 2 || told > 1 { // the quick one may have fallen behind for a moment
		t.Errorf("%d pages are kept for it, and %d readers are told", len(slow.pages), told)
	}
	same(t, h.next(slow, 10), want)
	h.settle(slow) // it is told again what comes
	position := h.tell(h.pool, h.entries[0])
	same(t, h.next(slow, 1), []int64{position})
	same(t, h.next(quick, 1), []int64{position})
}

// The only reader falls behind again and again, and the poller ends with it.
func TestTheOnlyReaderFallsBehind(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	f := h.feed(Options{Page: 2, Buffer: 1})
	r := h.read(f, Cursor{})
	for range 3 {
		h.settle(r)
		want := make([]int64, 9)
		tx := h.begin()
		for i := range want {
			want[i] = h.tell(tx, h.entries[i%3])
		}
		h.commit(tx)
		<-r.dropped
		same(t, h.next(r, len(want)), want)
	}
	r.Close()
	if f.poller != nil {
		t.Error("the poller goes on")
	}
}

// From now on: what is over is not told, what is under way is.
func TestFromNowOn(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	f := h.feed(Options{})
	over := h.tell(h.pool, h.entries[0])
	all := h.read(f, Cursor{})
	same(t, h.next(all, 1), []int64{over}) // it is complete
	all.Close()
	open := h.begin()
	position := h.tell(open, h.entries[0])
	now, err := f.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := h.read(f, now)
	defer r.Close()
	h.commit(open)
	same(t, h.next(r, 1), []int64{position})
}

// The transaction with the later event of a task has the lower id, and another
// between the two is still open.
func TestEventsOfATaskAreNotDivided(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.read(h.feed(Options{}), Cursor{})
	defer r.Close()
	h.settle(r)
	low, between, high := h.begin(), h.begin(), h.begin()
	first := h.tell(high, h.entries[0])
	h.commit(high)
	second := h.tell(low, h.entries[0])
	h.commit(low)
	if list, err := r.Next(t.Context(), 100*time.Millisecond); err != nil || len(list) > 0 {
		t.Errorf("%v, %v while a transaction between is open", list, err)
	}
	h.commit(between)
	same(t, h.next(r, 2), []int64{first, second})
}

func TestThereAreNotTooManyReaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	f := h.feed(Options{MaxReaders: 2, MaxShare: 2})
	a, b := h.read(f, Cursor{}), h.read(f, Cursor{})
	defer b.Close()
	if _, err := f.Read(t.Context(), Cursor{}, here); tasker.CodeOf(err) != tasker.Unavailable {
		t.Errorf("a third reader: %v, want Unavailable", err)
	}
	a.Close()
	h.read(f, Cursor{}).Close()
}

var here, there = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")

// Nor can one caller from many addresses, or one site of IPv6 with all of its addresses.
func TestACallerHasItsShare(t *testing.T) {
	t.Parallel()
	f := New(nil, Options{MaxReaders: 4})
	reader := func(address, subject string) *Reader {
		return &Reader{feed: f, address: overload.Network(netip.MustParseAddr(address)), subject: subject}
	}
	enter := func(r *Reader, words string) {
		t.Helper()
		if err := f.readers.enter(r.address, r.subject); words == "" && err != nil || words != "" && (tasker.CodeOf(err) != tasker.Unavailable || !strings.Contains(err.Error(), words)) {
			t.Errorf("%s of %s: %v, want %q", r.address, r.subject, err, words)
		}
	}
	first := reader("2001:db8::1", "key:a")
	enter(first, "")
	enter(reader("2001:db8::2", ""), "")
	enter(reader("2001:db8::3", ""), "2 readers from 2001:db8::/64")
	enter(reader("192.0.2.1", "key:a"), "")
	enter(reader("192.0.2.2", "key:a"), "2 readers of key:a, which is the limit")
	f.removeReader(first)
	enter(reader("192.0.2.2", "key:a"), "")
	enter(reader("192.0.2.3", ""), "") // where nobody is asked who they are, all are one
}

// One address cannot take the places of all.
func TestAnAddressHasItsShare(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	f := h.feed(Options{MaxReaders: 4})
	var first *Reader
	for range 2 {
		first = h.read(f, Cursor{})
		t.Cleanup(first.Close)
	}
	_, err := f.Read(t.Context(), Cursor{}, here)
	if tasker.CodeOf(err) != tasker.Unavailable || !strings.Contains(err.Error(), "2 readers from 192.0.2.1/32") {
		t.Errorf("a third reader of one address: %v, want Unavailable", err)
	}
	for range 10 { // its place is free again
		r, err := f.Read(t.Context(), Cursor{}, there)
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	if len(f.readers.from) != 1 {
		t.Errorf("addresses are kept: %v", f.readers.from)
	}
}

func TestAPointOfAnotherDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, p := range []Cursor{{From: 5, Before: 1 << 60}, {From: 1, Before: 2, Database: "0123456789ab"}} {
		if _, err := h.feed(Options{}).Read(t.Context(), p, here); tasker.CodeOf(err) != tasker.Invalid {
			t.Errorf("%v: %v, want Invalid", p, err)
		}
	}
}

// Another database under the same name counts transactions as the one before: who
// reads is told, and no id of before is good for it, however far it has come.
func TestADatabaseIsReplacedUnderItsReaders(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	f := h.feed(Options{})
	r := h.read(f, Cursor{})
	defer r.Close()
	first := h.tell(h.pool, h.entries[0])
	same(t, h.next(r, 1), []int64{first})
	h.settle(r)
	before := r.Point()
	late := h.read(f, before) // reads on by itself, later
	defer late.Close()

	name := h.pool.Config().ConnConfig.Database
	admin := pgtest.New(t).Pool(t)
	for _, statement := range []string{
		`ALTER DATABASE %s ALLOW_CONNECTIONS false`,
		`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '%s'`,
		`CREATE DATABASE %[1]s_copy TEMPLATE %[1]s`,
		`ALTER DATABASE %[1]s RENAME TO %[1]s_replaced`,
		`ALTER DATABASE %[1]s_copy RENAME TO %[1]s`,
	} {
		if _, err := admin.Exec(t.Context(), fmt.Sprintf(statement, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, r := range map[string]*Reader{"a reader that follows": r, "a reader that is behind": late} {
		deadline := time.Now().Add(time.Minute)
		for err := error(nil); !errors.Is(err, ErrReplaced); _, err = r.Next(t.Context(), time.Second) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: %v, want ErrReplaced", name, err)
			}
		}
	}
	h.pool.Reset()
	h.db.Pool().Reset()
	h.tell(h.pool, h.entries[0]) // so that it has come farther
	if _, err := f.Read(t.Context(), before, here); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("read on: %v, want Invalid", err)
	}
	anew := h.read(f, Cursor{})
	defer anew.Close()
	h.next(anew, 2)
}

// While nobody reads, nobody looks.
func TestThePollerEndsWithTheLastReader(t *testing.T) {
	h := newHarness(t)
	before := goleak.IgnoreCurrent()
	f := h.feed(Options{})
	var p Cursor
	for range 3 {
		a, b := h.read(f, p), h.read(f, p)
		h.settle(a)
		h.settle(b)
		b.Close()
		position := h.tell(h.pool, h.entries[0])
		same(t, h.next(a, 1), []int64{position})
		p = a.Point()
		a.Close()
		if f.poller != nil {
			t.Error("the poller goes on")
		}
	}
	h.pool.Reset()
	h.db.Reset()
	var left error
	for deadline := time.Now().Add(time.Minute); ; { // a connection whose query was cancelled is closed in the background
		left = goleak.Find(before, goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgxpool.(*Pool).backgroundHealthCheck"))
		if left == nil || time.Now().After(deadline) {
			break
		}
	}
	if left != nil {
		t.Error(left)
	}
}

// A feed goes on where it was when the database is there again.
func TestTheFeedOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	r := h.read(h.feed(Options{}), Cursor{})
	defer r.Close()
	h.settle(r)
	var want []int64
	for range 5 {
		if _, err := h.pool.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'tasker'`); err != nil {
			t.Fatal(err)
		}
		want = append(want, h.tell(h.pool, h.entries[0]))
	}
	same(t, h.next(r, 5), want)
}

// What a reader has to catch up with, it reads page by page.
func TestALongHistory(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	_, err := h.pool.Exec(t.Context(), `INSERT INTO tasker.outbox (topic, task_uuid, dlq_entry_uuid, data)
		SELECT 'dlq.entry.updated', $1, $2, jsonb_build_object('n', n) FROM generate_series(1, 5000) n`, h.entries[0].Task, h.entries[0].Entry)
	if err != nil {
		t.Fatal(err)
	}
	r := h.read(h.feed(Options{Page: 100}), Cursor{})
	defer r.Close()
	same(t, h.next(r, 5000), h.all())
	h.settle(r)
	position := h.tell(h.pool, h.entries[0])
	same(t, h.next(r, 1), []int64{position})
}
