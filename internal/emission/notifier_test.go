package emission_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/emission"
	"tasker.example/tasker/internal/enginetest"
	"tasker.example/tasker/internal/notice"
	"tasker.example/tasker/internal/postgres"
	"tasker.example/tasker/internal/sink"
)

// A voice is a database in which steps fail, and a server that tells people of it.
type voice struct {
	*harness
	worker tasker.ID
	teller *emission.Notifier
	routes notice.Routes
}

func newVoice(t *testing.T, routes ...string) *voice {
	t.Helper()
	v := &voice{harness: newHarness(t)}
	v.Template("order", enginetest.Step("charge"))
	v.worker = v.RegisterWorker("run")
	list, err := notice.ParseRoutes(strings.Join(append(routes, "-> first"), "\n"))
	v.Must(err)
	v.routes = notice.Routes{List: list, Default: []string{"log"}}
	v.teller = v.server()
	return v
}

// server is one that tells people.
func (v *voice) server() *emission.Notifier {
	return emission.NewNotifier(emission.NotifierOptions{DB: v.DB, Installation: "prod", Routes: v.routes})
}

// fail makes tasks whose step fails for good with a message, and finds their case.
func (v *voice) fail(n int, message string) (tasks []tasker.ID) {
	v.Helper()
	for range n {
		tasks = append(tasks, v.Create("order"))
	}
	v.again(n, message)
	return tasks
}

// again fails steps that are there.
func (v *voice) again(n int, message string) {
	v.Helper()
	for n > 0 {
		list, err := v.Engine.Claim(v.Context(), v.worker, n, 0)
		v.Must(err)
		if len(list) == 0 {
			v.Fatalf("%d steps are missing that should fail", n)
		}
		var outcomes []tasker.Outcome
		for _, a := range list {
			outcomes = append(outcomes, tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Type: "GatewayError", Message: message}})
		}
		_, err = v.Engine.Report(v.Context(), v.worker, outcomes, 0)
		v.Must(err)
		n -= len(list)
	}
	v.FindCases()
}

// repair resolves the failed step of tasks, and ends their investigations.
func (v *voice) repair(tasks ...tasker.ID) {
	v.Helper()
	for _, task := range tasks {
		steps, err := v.DB.Steps(v.Context(), task)
		v.Must(err)
		_, err = v.Engine.OperateStep(v.Context(), task, steps[0].UUID, tasker.ActionRequest{Action: tasker.ResolveManually, Actor: "ann", Reason: "repaired"})
		v.Must(err)
		notes, status, by := "repaired", tasker.EntryManuallyResolved, "ann"
		_, _, err = v.DLQ.Update(v.Context(), v.Entry(task).UUID, tasker.EntryUpdate{Status: &status, Notes: &notes, ResolvedBy: &by, Actor: "ann"})
		v.Must(err)
	}
	v.judge()
}

func (v *voice) judge() {
	v.Helper()
	c := cases.New(v.DB, cases.Options{})
	_, err := c.Classify(v.Context())
	v.Must(err)
	v.Must(c.UpdateStates(v.Context()))
}

// later has time go by.
func (v *voice) later(d time.Duration) {
	v.Helper()
	v.Exec(`UPDATE tasker.incidents SET began_at = began_at - $1::interval, told_at = told_at - $1::interval, unowned_since = unowned_since - $1::interval`, d)
	v.Exec(`UPDATE tasker.case_members SET opened_at = opened_at - $1::interval`, d)
	v.Exec(`UPDATE tasker.cases SET digested_at = digested_at - $1::interval, owned_until = owned_until - $1::interval`, d)
	v.Exec(`UPDATE tasker.messages SET created_at = created_at - $1::interval`, d)
}

// tell looks at the cases, and returns what people were told in all, with the sinks.
func (v *voice) tell() string {
	v.Helper()
	v.judge()
	v.Must(v.teller.CreateDue(v.Context()))
	v.Must(v.teller.Route(v.Context()))
	return v.told()
}

func (v *voice) told() string {
	v.Helper()
	var text string
	v.Must(v.Admin().QueryRow(v.Context(), `
		SELECT coalesce(string_agg(m.topic || ' ' || coalesce(s.sinks, '-'), ', ' ORDER BY m.position), '')
		FROM tasker.messages m
		CROSS JOIN LATERAL (SELECT string_agg(e.sink, '+' ORDER BY e.sink) AS sinks FROM tasker.message_emissions e WHERE e.position = m.position) s`).Scan(&text))
	return text
}

func (v *voice) want(want string) {
	v.Helper()
	if got := v.tell(); got != want {
		v.Errorf("told %q, want %q", got, want)
	}
}

func (v *voice) own(who string) {
	v.Helper()
	list, _, err := v.DB.Cases(v.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 10}})
	v.Must(err)
	for _, c := range list {
		_, err := v.DB.UpdateCase(v.Context(), c.ID, tasker.CaseUpdate{Owner: &who, Actor: "test"})
		v.Must(err)
	}
}

// An incident is told of when it begins, when somebody takes it, when it fails again and when all
// is repaired, under one key, and there is never more than one message in five minutes.
func TestTheMessagesOfAnIncident(t *testing.T) {
	v := newVoice(t)
	tasks := v.fail(6, "HTTP 503")
	v.later(-time.Minute) // a slow machine has no hurry
	v.want("")            // it gathers
	v.later(time.Minute + 15*time.Second)
	v.want("case.opened first")
	tasks = append(tasks, v.fail(5, "connection refused")...)
	v.own("anna")
	v.want("case.opened first") // a message was sent a moment ago
	v.later(5 * time.Minute)
	v.want("case.opened first, case.grew first") // the second case
	v.want("case.opened first, case.grew first")
	v.repair(tasks...)
	v.want("case.opened first, case.grew first")
	v.later(5 * time.Minute)
	v.want("case.opened first, case.grew first, case.resolved first")
	v.later(time.Hour)
	v.want("case.opened first, case.grew first, case.resolved first")
	if n := v.Count(`SELECT count(DISTINCT dedup_key) FROM tasker.messages WHERE dedup_key LIKE 'tasker:prod:incident:%'`); n != 1 {
		t.Errorf("%d keys of one incident", n)
	}
	v.fail(1, "HTTP 503")
	v.later(15 * time.Second)
	v.want("case.opened first, case.grew first, case.resolved first, case.regressed first")
	if n := v.Count(`SELECT count(*) FROM tasker.incidents`); n != 2 {
		t.Errorf("%d incidents", n)
	}
}

// When the case of an incident is merged into another one, the incident goes on with that.
func TestAnIncidentGoesOnAfterAMerge(t *testing.T) {
	v := newVoice(t)
	tasks := v.fail(6, "HTTP 503")
	v.later(15 * time.Second)
	v.want("case.opened first")
	v.later(time.Hour)
	tasks = append(tasks, v.fail(1, "connection refused")...)
	list, _, err := v.DB.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 10}})
	v.Must(err)
	v.Must(v.DB.MergeCases(t.Context(), list[0].ID, list[1].ID, "ann", "one outage"))
	v.own("anna")
	v.want("case.opened first, case.owned first")
	incidents, _, err := v.DB.Incidents(t.Context(), tasker.IncidentFilter{Limit: 10})
	v.Must(err)
	if len(incidents) != 1 || incidents[0].Entries != 7 || incidents[0].EndedAt != nil {
		t.Errorf("%+v", incidents)
	}
	v.repair(tasks...)
	v.later(5 * time.Minute)
	v.want("case.opened first, case.owned first, case.resolved first")
}

// Small cases are told of together once an hour, when nobody has taken them for 15 minutes.
func TestSmallCasesAreToldOfInADigest(t *testing.T) {
	v := newVoice(t)
	for _, what := range []string{"disk full", "no such bucket", "invalid currency", "permission denied"} {
		v.fail(1, what)
	}
	v.fail(4, "HTTP 503")
	v.later(14 * time.Minute)
	v.want("")
	list, _, err := v.DB.Cases(t.Context(), tasker.CaseFilter{InvestigationFilter: tasker.InvestigationFilter{Limit: 10, Text: "disk"}})
	v.Must(err)
	who := "bo"
	_, err = v.DB.UpdateCase(t.Context(), list[0].ID, tasker.CaseUpdate{Owner: &who, Actor: "test"})
	v.Must(err)
	v.later(time.Minute)
	v.want("digest.cases first")
	v.fail(1, "too many open files")
	v.later(50 * time.Minute)
	v.want("digest.cases first")
	v.later(10 * time.Minute)
	v.want("digest.cases first, digest.cases first")
	v.later(2 * time.Hour)
	v.want("digest.cases first, digest.cases first")
	var numbers []string
	v.Must(v.Admin().QueryRow(t.Context(), `SELECT array_agg(data ->> 'cases' || '/' || (data ->> 'entries') ORDER BY position) FROM tasker.messages`).Scan(&numbers))
	if fmt.Sprint(numbers) != "[4/7 1/1]" {
		t.Errorf("digests of %v cases/tasks", numbers)
	}
}

// A dead database fails every step with an address, an id and a port of its own: one case, one message.
func TestOneDeadDatabaseIsOneMessage(t *testing.T) {
	v := newVoice(t)
	receiver := newReceiver(t)
	named, err := sink.NewWebhook(sink.WebhookOptions{Name: "first", URL: receiver.URL, AllowPrivate: true, Source: "prod"})
	v.Must(err)
	v.relay(v.DB, func(o *emission.Options) { o.Named = []sink.Sink{named} })
	v.failWith(60, func(i int) string {
		return fmt.Sprintf("posting entry %d: connection refused to 10.0.3.%d:5432 (transaction 7f3b9c%06x)", 89147702+i*31, 1+i%9, i*7919)
	})
	for range 10 {
		v.later(15 * time.Second)
		v.want("case.opened first")
	}
	if n := v.Count(`SELECT count(*) FROM tasker.cases`); n != 1 {
		t.Errorf("%d cases", n)
	}
	v.Eventually("the message", func() bool { return len(receiver.all()) > 0 })
	if got := receiver.all(); len(got) != 1 {
		t.Errorf("%d messages were received", len(got))
	}
	v.wantSummaries("shop: 60 tasks stuck: order > charge: posting entry <id>: connection refused to <ip>:5432 (transaction <id>)")
}

// Many small cases of one namespace are one incident: one message with all, an end, and no digest.
func TestManySmallCasesAreOneIncident(t *testing.T) {
	v := newVoice(t)
	words := strings.Fields("alder beech cedar elder hazel larch maple olive poplar rowan willow yew")
	tasks := v.failWith(144, func(i int) string {
		return "cannot post " + words[i%12] + " of " + words[i/12]
	})
	if n := v.Count(`SELECT count(*) FROM tasker.cases`); n < 100 {
		t.Fatalf("%d cases: the texts were to be cases of their own", n)
	}
	v.later(15 * time.Second)
	v.want("case.opened first")
	v.later(6 * time.Minute)
	v.want("case.opened first")
	v.later(10 * time.Minute)
	v.want("case.opened first, case.unowned -")
	v.repair(tasks...)
	v.later(6 * time.Minute)
	v.want("case.opened first, case.unowned -, case.resolved first")
	var summary string
	v.Must(v.Admin().QueryRow(t.Context(), `SELECT data ->> 'summary' FROM tasker.messages ORDER BY position LIMIT 1`).Scan(&summary))
	if !strings.HasPrefix(summary, "shop: 144 tasks stuck: 144 tasks in 144 small cases such as order > charge: cannot post ") {
		t.Error(summary)
	}
}

// The named case is repaired: the message names the one that remains.
func TestMessagesFollowTheRepair(t *testing.T) {
	v := newVoice(t)
	first := v.fail(9, "HTTP 503")
	second := v.fail(6, "connection refused")
	v.later(15 * time.Second)
	v.want("case.opened first")
	v.repair(first...)
	v.later(5 * time.Minute)
	v.want("case.opened first, case.changed first")
	v.later(10 * time.Minute)
	v.want("case.opened first, case.changed first, case.unowned -")
	v.repair(second...)
	v.later(5 * time.Minute)
	v.want("case.opened first, case.changed first, case.unowned -, case.resolved first")
	v.wantSummaries(
		"shop: 15 tasks stuck: order > charge: HTTP 503, and 1 other case",
		"shop: 6 tasks stuck by now: order > charge: connection refused",
		"shop: 6 tasks stuck, unowned since …: order > charge: connection refused",
		"shop: resolved: order > charge: connection refused, and 1 other case",
	)
	incidents, _, err := v.DB.Incidents(t.Context(), tasker.IncidentFilter{Limit: 10})
	v.Must(err)
	if incidents[0].ErrorPattern != "connection refused" {
		t.Errorf("%+v", incidents[0])
	}
}

// Tasks that a person opened by hand are in a digest only.
func TestTasksOpenedByHandArePartOfNoIncident(t *testing.T) {
	v := newVoice(t)
	v.fail(5, "HTTP 503")
	for range 7 {
		_, err := v.DLQ.Open(v.Context(), v.Create("order"), tasker.NewEntry{Reason: "please check", Actor: "ann"})
		v.Must(err)
	}
	v.later(15 * time.Second)
	v.want("case.opened first")
	v.later(15 * time.Minute)
	v.want("case.opened first, case.unowned -, digest.cases first")
	v.later(45 * time.Minute)
	v.want("case.opened first, case.unowned -, digest.cases first, case.unowned first")
	var counted []string
	v.Must(v.Admin().QueryRow(t.Context(), `SELECT array_agg(data ->> 'cases' || '/' || (data ->> 'entries') ORDER BY position) FROM tasker.messages`).Scan(&counted))
	if fmt.Sprint(counted) != "[1/5 1/5 1/7 1/5]" {
		t.Errorf("messages about %v cases/tasks", counted)
	}
}

// A pause that its operator ends is no message; one that lasts is one.
func TestOnlyAPauseThatLastsIsTold(t *testing.T) {
	v := newVoice(t)
	op := tasker.NewID()
	resumed := tasker.Operation{UUID: op, Guards: tasker.Guards{Tolerate: &tasker.FailureTolerance{}}}
	v.Exec(`
		INSERT INTO tasker.operations (
			operation_uuid, request_key, digest, act, selection, planned_by, reason, namespaces, state, waves, tolerate, stop_on_new_cause, wave_timeout,
			started_at, started_by, expires_at
		) VALUES ($1, 'key', '', 'reset_for_retry', '{}', 'ann', 'back', '{shop}', 'running', '{1}', '4', true, '1 hour', now(), 'ann', now() + interval '1 day')`, op)
	pause := func(why tasker.PauseReason) {
		v.Must(v.DB.InTx(v.Context(), func(tx *postgres.Tx) error {
			return tx.PauseOperation(v.Context(), op, tasker.OperationPause{For: why, By: "tasker"})
		}))
	}
	resume := func() {
		v.Must(v.DB.InTx(v.Context(), func(tx *postgres.Tx) error { return tx.ResumeOperation(v.Context(), resumed, "ann") }))
	}
	later := func(d time.Duration) { v.Exec(`UPDATE tasker.operations SET paused_at = paused_at - $1::interval`, d) }
	for range 8 {
		pause(tasker.PausedWaveFailed)
		later(299 * time.Second)
		v.tell()
		resume()
	}
	if got := v.tell(); strings.Contains(got, "operation.paused") {
		t.Errorf("sent %s", got)
	}
	pause(tasker.PausedByOperator)
	later(time.Hour)
	if got := v.tell(); strings.Contains(got, "operation.paused") {
		t.Errorf("sent %s for a pause by a person", got)
	}
	resume()
	pause(tasker.PausedWaveFailed)
	later(300 * time.Second)
	for range 3 {
		if got := v.tell(); strings.Count(got, "operation.paused first") != 1 {
			t.Errorf("sent %s", got)
		}
	}
}

// failWith makes tasks whose step fails for good, each with a message of its own.
func (v *voice) failWith(n int, message func(i int) string) (tasks []tasker.ID) {
	v.Helper()
	for range n {
		tasks = append(tasks, v.Create("order"))
	}
	for i := 0; i < n; {
		list, err := v.Engine.Claim(v.Context(), v.worker, n-i, 0)
		v.Must(err)
		var outcomes []tasker.Outcome
		for _, a := range list {
			outcomes = append(outcomes, tasker.Outcome{Lease: a.Lease(), Failure: &tasker.Failure{Type: "GatewayError", Message: message(i)}})
			i++
		}
		_, err = v.Engine.Report(v.Context(), v.worker, outcomes, 0)
		v.Must(err)
	}
	v.FindCases()
	return tasks
}

var sinceTime = regexp.MustCompile(`since \d\d:\d\dZ`)

// wantSummaries compares the summaries of all messages.
func (v *voice) wantSummaries(want ...string) {
	v.Helper()
	var got []string
	v.Must(v.Admin().QueryRow(v.Context(), `SELECT array_agg(data ->> 'summary' ORDER BY position) FROM tasker.messages`).Scan(&got))
	for i := range got {
		got[i] = sinceTime.ReplaceAllString(got[i], "since …")
	}
	if !slices.Equal(got, want) {
		v.Errorf("summaries\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Of an incident that nobody takes the next route is told after 15 minutes, and all are after 45.
func TestAnIncidentThatNobodyTakesEscalates(t *testing.T) {
	v := newVoice(t, "namespace=shop -> team, chat", "severity=high -> duty", "namespace=other -> other")
	v.fail(5, "HTTP 503")
	v.later(15 * time.Second)
	v.want("case.opened chat+team")
	v.later(14*time.Minute + 30*time.Second)
	v.want("case.opened chat+team")
	v.later(30 * time.Second)
	v.want("case.opened chat+team, case.unowned duty")
	v.later(29 * time.Minute)
	v.want("case.opened chat+team, case.unowned duty")
	v.later(time.Minute)
	v.want("case.opened chat+team, case.unowned duty, case.unowned chat+duty+first+team")
	v.later(24 * time.Hour)
	v.want("case.opened chat+team, case.unowned duty, case.unowned chat+duty+first+team")
	v.own("anna")
	v.want("case.opened chat+team, case.unowned duty, case.unowned chat+duty+first+team, case.owned chat+duty+first+team")
}

// Of two servers that tell at once one does.
func TestTwoServersSendOnce(t *testing.T) {
	v := newVoice(t)
	tasks := v.fail(6, "HTTP 503")
	v.fail(1, "disk full")
	both := func() {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 6 {
			s := v.server()
			all.Go(func() {
				<-begin
				for range 10 {
					if err := s.CreateDue(t.Context()); err != nil {
						t.Error(err)
					}
					if err := s.Route(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		close(begin)
		all.Wait()
	}
	v.later(-time.Hour)
	both() // nothing is due; all have their connections then
	v.later(time.Hour + 20*time.Minute)
	both()
	v.want("case.opened first, digest.cases first")
	v.repair(tasks...)
	v.later(10 * time.Minute)
	both()
	v.want("case.opened first, digest.cases first, case.resolved first")
}

// While a receiver is down messages wait, and come in their order, under one key.
func TestMessagesOfAnOutageComeInOrder(t *testing.T) {
	v := newVoice(t)
	receiver := newReceiver(t)
	named, err := sink.NewWebhook(sink.WebhookOptions{Name: "first", URL: receiver.URL, AllowPrivate: true, Source: "prod"})
	v.Must(err)
	v.relay(v.DB, func(o *emission.Options) { o.Named = []sink.Sink{named} })
	tasks := v.fail(5, "HTTP 503")
	v.later(15 * time.Second)
	v.tell()
	v.Eventually("the first message", func() bool { return len(receiver.all()) == 1 })
	receiver.answer.Store(func(w http.ResponseWriter, _ received) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	v.own("anna")
	v.later(5 * time.Minute)
	v.tell()
	v.Eventually("a try", func() bool {
		return v.Count(`SELECT count(*) FROM tasker.message_emissions WHERE attempts > 0 AND state = 'pending'`) == 1
	})
	v.repair(tasks...)
	v.later(5 * time.Minute)
	v.want("case.opened first, case.owned first, case.resolved first")
	receiver.answer.Store(func(http.ResponseWriter, received) bool { return false })
	v.Exec(`UPDATE tasker.message_emissions SET next_attempt_at = now() WHERE state = 'pending'`)
	v.hurry()
	var types []string
	keys := map[string]bool{}
	v.Eventually("all messages", func() bool {
		types = nil
		seen := map[string]bool{} // one whose attempt was under way when its time was changed is sent again
		for _, e := range receiver.all() {
			if keys[e.DedupKey] = true; !seen[e.ID] {
				types, seen[e.ID] = append(types, e.Type), true
			}
		}
		return len(types) >= 3
	})
	if got := fmt.Sprint(types); got != "[tasker.case.opened tasker.case.owned tasker.case.resolved]" {
		t.Error(got)
	}
	if len(keys) != 1 {
		t.Errorf("keys %v", keys)
	}
}

// Messages go after 90 days, but for those of an incident that goes on, which say whom to tell of
// its end.
func TestOldMessagesAreRemoved(t *testing.T) {
	t.Parallel()
	v := newVoice(t)
	tidy := func(want int) {
		t.Helper()
		for _, l := range cases.New(v.DB, cases.Options{}).Loops() {
			if l.Name == "tidy up messages" {
				_, err := l.Pass(t.Context())
				v.Must(err)
			}
		}
		if n := v.Count(`SELECT count(*) FROM tasker.messages`); n != want {
			t.Errorf("%d messages are left, want %d", n, want)
		}
	}
	tasks := v.fail(5, "HTTP 503")
	v.later(15 * time.Second)
	v.tell()
	v.want("case.opened first")
	v.Exec(`UPDATE tasker.messages SET created_at = now() - interval '91 days'`)
	tidy(1) // the incident goes on
	_, err := v.DB.CreateTestNotification(t.Context(), tasker.NotificationData{Namespace: "shop"}, "ann")
	v.Must(err)
	v.Exec(`UPDATE tasker.messages SET created_at = now() - interval '91 days'`)
	if p, err := v.DB.PruneMessages(t.Context(), 90*24*time.Hour, 1); err != nil || p.Removed != 1 {
		t.Errorf("behind those that stay, removed %+v: %v", p, err)
	}
	v.repair(tasks...)
	v.later(5 * time.Minute)
	v.tell()
	v.want("case.opened first, case.resolved first")
	tidy(1)
	v.Exec(`UPDATE tasker.messages SET created_at = now() - interval '89 days'`)
	tidy(1)
	v.Exec(`UPDATE tasker.messages SET created_at = now() - interval '91 days'`)
	tidy(0)
	if n := v.Count(`SELECT count(*) FROM tasker.message_emissions`); n != 0 {
		t.Errorf("%d emissions of them are left", n)
	}
	tidy(0)
}

// Messages that others have written are routed although nothing can be told of cases.
func TestMessagesAreRoutedThoughCasesCannotBeToldOf(t *testing.T) {
	t.Parallel()
	v := newVoice(t)
	v.fail(5, "HTTP 503")
	v.later(time.Minute)
	v.Exec(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no incident'; END $$`)
	v.Exec(`CREATE TRIGGER refuse BEFORE INSERT ON tasker.incidents FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
	v.Exec(`INSERT INTO tasker.messages (topic, subject_kind, subject_id, namespaces, data) VALUES ('hold.began', 'hold', $1, '{shop}', '{}')`, tasker.NewID())
	l := v.teller.Loops()[0]
	if _, err := l.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "no incident") {
		t.Errorf("the pass says %v", err)
	}
	if n := v.Count(`SELECT count(*) FROM tasker.messages WHERE routed_at IS NOT NULL`); n != 1 {
		t.Errorf("%d messages are routed", n)
	}
}
