package access_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
)

func TestParseGrants(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"operator@payments": "operator@payments", "viewer@*": "viewer@*", "worker@a@b": "worker@a@b",
	} {
		g, err := access.ParseGrant(text)
		if err != nil || g.String() != want {
			t.Errorf("%q is read as %v, %v", text, g, err)
		}
	}
	for text, words := range map[string]string{
		"": "the role must be one of", "root@*": "the role must be one of viewer, operator, developer, worker, admin", "operator": "role@namespace",
		"operator@": "role@namespace", "operator@" + strings.Repeat("n", 129): "at most 128 characters", "operator@a\x00": "valid UTF-8", "operator@\xff": "valid UTF-8",
	} {
		if _, err := access.ParseGrant(text); tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, want %q", text, err, words)
		}
	}
	list, err := access.ParseGrants([]string{"viewer@b", "admin@a", "viewer@b"})
	if err != nil || len(list) != 2 || list[0].String() != "admin@a" {
		t.Errorf("the list is %v, %v", list, err)
	}
	if _, err := access.ParseGrants(make([]string, access.MaxGrants+1)); tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("too many grants: %v", err)
	}
}

func TestScopes(t *testing.T) {
	t.Parallel()
	id := access.NewIdentity("key:a", []access.Grant{{access.Viewer, "b"}, {access.Operator, "a"}, {access.Admin, "c"}})
	for p, want := range map[access.Permission][]string{
		access.ReadTasks: {"a", "b", "c"}, access.CancelTasks: {"a", "c"}, access.ReadPayloads: {"a", "c"}, access.CreateTasks: {"c"},
		access.ActAsWorker: {"c"}, access.Administer: {}, access.ReadMetrics: {}, // of the installation: only for all namespaces
	} {
		if got := id.Scope(p); got.IncludesAll() || !slices.Equal(got.List(), want) || got.List() == nil {
			t.Errorf("%s: %q, want %q", p, got.List(), want)
		}
	}
	if seen := id.VisibleScope().List(); !slices.Equal(seen, []string{"a", "b", "c"}) {
		t.Errorf("it sees %q", seen)
	}
	everywhere := access.NewIdentity("key:b", []access.Grant{{access.Worker, "a"}, {access.Viewer, access.AllNamespaces}})
	if s := everywhere.Scope(access.ReadTasks); !s.IncludesAll() || s.List() != nil || !s.Has("any") {
		t.Errorf("for all namespaces: %+v", s)
	}
	if s := everywhere.Scope(access.ActAsWorker); s.IncludesAll() || !s.Has("a") || s.Has("any") {
		t.Errorf("for one: %+v", s)
	}
	if !everywhere.Scope(access.ReadMetrics).IncludesAll() || !everywhere.Scope(access.Administer).IsEmpty() {
		t.Error("of the installation: a viewer of all namespaces sees metrics, and does not administer")
	}
	if s := access.NewIdentity("x", []access.Grant{{"root", access.AllNamespaces}}).VisibleScope(); !s.IsEmpty() {
		t.Errorf("a role that does not exist gives %+v", s)
	}
	for _, p := range access.Permissions() {
		if !access.Local().Scope(p).IncludesAll() {
			t.Errorf("where nobody signs in %s is missing", p)
		}
	}
}

// Whatever names are given, the actor begins with the subject, and what comes behind
// cannot be taken for it.
func TestActorsCannotBeForged(t *testing.T) {
	t.Parallel()
	id := access.NewIdentity(access.KeySubject("deploy"), nil)
	for name, want := range map[string]string{
		"": "key:deploy", "key:deploy": "key:deploy", "alice": "key:deploy (alice)", "key:root": "key:deploy (key:root)", "user:root": "key:deploy (user:root)", " alice ": "key:deploy (alice)", "x) key:root (": "key:deploy (x) key:root ()",
	} {
		if got := id.Actor(name); got != want {
			t.Errorf("%q acts as %q, want %q", name, got, want)
		}
	}
	long := id.Actor(strings.Repeat("ä", 300))
	if n := utf8.RuneCountInString(long); n != 255 || !strings.HasPrefix(long, "key:deploy (ä") || !strings.HasSuffix(long, "…)") {
		t.Errorf("a long name makes %d characters: %s", n, long)
	}
	if got := access.Local().Actor("alice"); got != "alice" {
		t.Errorf("where nobody signs in: %q", got)
	}
	odd := access.NewIdentity("eve (key:root)\n%", nil)
	if strings.ContainsAny(odd.Subject, " ()\n") || odd.Subject != "eve%20%28key:root%29%0A%25" {
		t.Errorf("the subject is %q", odd.Subject)
	}
}

// Subjects that differ stay different, however long they are, and look like what they are.
func TestSubjectsAreDistinctAndVisible(t *testing.T) {
	t.Parallel()
	subject := func(text string) string { return access.NewIdentity(text, nil).Subject }
	long := subject(strings.Repeat("ä", 150) + "a")
	for _, other := range []string{strings.Repeat("ä", 150) + "b", strings.Repeat("ä", 150), long, strings.ReplaceAll(long, "%", "")} {
		if subject(other) == long {
			t.Errorf("%q is the same subject as another one", other)
		}
	}
	if len(long) > access.MaxSubject || !utf8.ValidString(long) || !strings.HasPrefix(long, "ää") {
		t.Errorf("a long subject has %d bytes: %q", len(long), long)
	}
	if exact := strings.Repeat("a", access.MaxSubject); subject(exact) != exact {
		t.Errorf("a subject of %d bytes is changed", access.MaxSubject)
	}
	for _, hidden := range []string{
		"\u202e", "\u200b", "\u200d", "\u2066", "\ufeff", "\u00ad", "\u2028", "\u0085", "\u00a0", "\u3000", "\U000e0041", "\ufe0f", "\u3164", "\u034f", "\ue000",
	} {
		if got := subject("ann" + hidden); !strings.HasPrefix(got, "ann%") {
			t.Errorf("%+q is shown as %+q", hidden, got)
		}
	}
	if got := subject("user:Łukasz.Müller@例え.jp"); got != "user:Łukasz.Müller@例え.jp" {
		t.Errorf("a name becomes %q", got)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	a, b := access.NewToken(), access.NewToken()
	if a.Text == b.Text || a.Prefix == b.Prefix || len(a.Text) != 4+10+1+26 || !strings.HasPrefix(a.Text, a.Prefix+"_") {
		t.Errorf("tokens %+v, %+v", a, b)
	}
	again, ok := access.ParseToken(a.Text)
	if !ok || again != a {
		t.Errorf("read again: %+v, %v", again, ok)
	}
	for _, text := range []string{"", a.Text + "A", a.Text[1:], strings.ToUpper(a.Text), a.Prefix, a.Text + "\n"} {
		if _, ok := access.ParseToken(text); ok {
			t.Errorf("%q is a token", text)
		}
	}
	for name, ok := range map[string]bool{"deploy": true, "a.b-c_d/e@f": true, "": false, "a b": false, "a(b": false, "a%": false, "a\n": false, strings.Repeat("n", 101): false, "\xff": false} {
		if err := access.CheckKeyName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestHide(t *testing.T) {
	t.Parallel()
	ctx := access.WithPayloadScope(t.Context(), access.NamespaceScope("open"))
	const secret = "hush"
	task := func(namespace string) tasker.Task {
		return tasker.Task{Namespace: namespace, Context: json.RawMessage(`{"order":"` + secret + `"}`)}
	}
	shown, hidden := task("open"), task("closed")
	access.RedactTask(ctx, &shown)
	access.RedactTask(ctx, &hidden)
	if !strings.Contains(string(shown.Context), secret) || strings.Contains(string(hidden.Context), secret) || !json.Valid(hidden.Context) {
		t.Errorf("contexts: %s, %s", shown.Context, hidden.Context)
	}
	steps := []tasker.Step{{
		Results: json.RawMessage(`{"success":true,"result":"hush"}`),
		Error:   json.RawMessage(`{"message":"hush","type":"Timeout","retryable":true,"attempt":2,"context":{"a":"hush"}}`),
	}, {Error: json.RawMessage(`"hush"`)}, {}}
	access.RedactSteps(access.WithNamespaces(ctx, []string{"open"}), steps...)
	if !strings.Contains(string(steps[0].Error), secret) {
		t.Error("hidden of a namespace whose payloads may be read")
	}
	access.RedactSteps(access.WithNamespaces(ctx, []string{"closed"}), steps...)
	moves := []tasker.Transition{{Detail: json.RawMessage(`{"message":"hush"}`), Reason: "hush"}, {Actor: "alice", Reason: "because"}}
	access.RedactTransitions(access.WithNamespaces(ctx, []string{"closed"}), moves)
	entry := tasker.Entry{
		Namespace: "closed", Metadata: json.RawMessage(`{"assignee":"alice","note":"hush"}`), Snapshot: json.RawMessage(`{"task_uuid":"1","template":{"context":"kept"},
			"task":{"context":{"a":"hush"},"reason":"hush","tags":["kept"]},"steps":[{"name":"charge","results":{"a":"hush"},"error":{"message":"hush"},"failures":[{"attempt":1,"error":"hush"}]}],
			"transitions":[{"reason":"hush","detail":{"a":"hush"},"to_state":"error"}],"snapshot_failed":"hush","redaction_failed":"hush","big":12345678901234567890}`),
		History: []tasker.EntryChange{
			{Metadata: json.RawMessage(`{"message":"hush"}`), Event: "step_failed", Actor: tasker.SystemActor, Notes: new("step charge failed for good: hush")},
			{Event: "created", Actor: tasker.SystemActor, Notes: new("rejected: hush")},
			{Event: "created", Actor: "alice", Notes: new("by hand, because")},
		},
	}
	access.RedactEntry(ctx, &entry)
	for _, kept := range []string{"alice", "kept", "charge", "12345678901234567890", `"to_state":"error"`, `"attempt":1`} {
		if !strings.Contains(string(entry.Snapshot)+string(entry.Metadata), kept) {
			t.Errorf("%s is gone: %s %s", kept, entry.Snapshot, entry.Metadata)
		}
	}
	pattern := "hush"
	access.RedactPattern(ctx, "closed", &pattern)
	event, ok := access.RedactEvent(ctx, tasker.Event{Data: json.RawMessage(`{"namespace":"closed","step":{"error_message":"hush","name":"charge"},"change":{"metadata":{"a":"hush"},"event":"step_failed","actor":"tasker","notes":"hush"}}`)})
	if !ok || !strings.Contains(string(event.Data), "charge") {
		t.Errorf("the event is %s, %v", event.Data, ok)
	}
	ended, ok := access.RedactEvent(ctx, tasker.Event{Data: json.RawMessage(`{"namespace":"closed","context":{"a":"hush"},"results":{"b":"hush"},"change":{"actor":null,"reason":"hush"}}`)})
	if !ok || !strings.Contains(string(ended.Data), access.Hidden) {
		t.Errorf("the event of a task is %s, %v", ended.Data, ok)
	}
	all, err := json.Marshal([]any{steps, moves, entry, pattern, event, ended})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(all), secret) || !strings.Contains(string(all), "because") || !strings.Contains(string(all), "Timeout") {
		t.Errorf("what is shown is %s", all)
	}
	for _, doc := range []string{`{"namespace":"closed"}`, `[]`, `{}`, `nonsense`} {
		if _, ok := access.RedactEvent(access.WithScope(ctx, access.NamespaceScope("open")), tasker.Event{Data: json.RawMessage(doc)}); ok {
			t.Errorf("an event of another namespace is shown: %s", doc)
		}
	}
}

// Whoever ends an investigation as permanently failed may have its task undone, which cancels it.
func TestWhoEndsInvestigationsMayCancelTasks(t *testing.T) {
	t.Parallel()
	for _, r := range access.Roles() {
		if p := r.Permissions(); slices.Contains(p, access.UpdateInvestigations) && !slices.Contains(p, access.CancelTasks) {
			t.Errorf("%s ends investigations and does not cancel tasks: the API and the page have to ask for that where an update compensates", r)
		}
	}
}

func TestScopesTogether(t *testing.T) {
	t.Parallel()
	ab, bc, all := access.NamespaceScope("a", "b"), access.NamespaceScope("b", "c"), access.EverywhereScope()
	for _, tt := range []struct {
		scope access.Scope
		want  []string
	}{{ab.Intersect(bc), []string{"b"}}, {ab.Intersect(all), []string{"a", "b"}}, {all.Intersect(bc), []string{"b", "c"}}, {all.Intersect(all), nil}, {ab.Intersect(access.NamespaceScope()), []string{}}} {
		if diff := cmp.Diff(tt.want, tt.scope.List()); diff != "" {
			t.Error(diff)
		}
	}
}
