package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/engine"
	"tasker.example/tasker/internal/enginetest"
)

func searched() tasker.Template {
	return tasker.Template{
		Namespace: enginetest.Namespace, Name: "searched", Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("one")},
		Search: map[string]tasker.SearchAttribute{
			"customer": {Type: tasker.AttributeText, From: "context.customer.id"},
			"amount":   {Type: tasker.AttributeNumber, From: "context.amount * 2"},
			"due":      {Type: tasker.AttributeTime, From: "timestamp(context.due)"},
			"gift":     {Type: tasker.AttributeBool, From: "has(context.note)"},
		},
	}
}

func TestTasksAreFoundByDeclaredAttributes(t *testing.T) {
	h := newHarness(t)
	var said bytes.Buffer
	leftOut := 0
	e := newEngine(h.DB, engine.Options{Log: slog.New(slog.NewTextHandler(&said, nil)), Hooks: enginetest.Hooks{Attribute: func(context.Context) { leftOut++ }}})
	_, _, err := e.RegisterTemplate(t.Context(), searched(), "x")
	h.Must(err)
	create := func(doc string) tasker.ID {
		made, err := e.CreateTasks(t.Context(), []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "searched", Context: json.RawMessage(doc)}})
		h.Must(err)
		return made[0].TaskUUID
	}
	ann := create(`{"customer": {"id": "ann"}, "amount": 12.5, "due": "2026-02-01T10:00:00+01:00", "note": "x"}`)
	bob := create(`{"customer": {"id": "bob"}, "amount": 1000000, "due": "2026-03-01T00:00:00Z"}`)
	none := create(`{}`)
	odd := create(`{"customer": {"id": 7}, "amount": "many", "due": "soon"}`)
	long := create(`{"customer": {"id": "` + strings.Repeat("é", 129) + `"}, "amount": null, "due": null}`)
	null := create(`{"customer": {"id": null}, "amount": 1}`)
	for text, found := range map[string][]tasker.ID{
		"customer:ann": {ann}, "customer:bob": {bob}, "customer:7": {odd}, "customer:": nil, "customer:an": nil,
		"amount:25": {ann}, "amount:25.0": {ann}, "amount:>24.9": {bob, ann}, "amount:>=25": {bob, ann}, "amount:>25": {bob}, "amount:<25": {null}, "amount:<=25": {ann, null},
		"amount:2.5e1": {ann}, "amount:>2.49E+01": {bob, ann}, "amount:>1e-3": {bob, ann, null}, "amount:2e6": {bob}, "amount:-1e-300": nil,
		"due:2026-02-01T09:00:00Z": {ann}, "due:>2026-02-01T09:00:00Z": {bob}, "due:<2027-01-01T00:00:00Z": {bob, ann},
		"gift:true": {ann}, "gift:false": {null, long, odd, none, bob},
		"gift:false&amount:>0": {null, bob}, "amount:>0&amount:<1000": {ann, null},
	} {
		var f tasker.TaskFilter
		for one := range strings.SplitSeq(text, "&") {
			a, err := tasker.ParseAttributeFilter(one)
			if (err != nil) != strings.HasSuffix(one, ":") {
				t.Errorf("%s: %v", one, err)
			}
			f.Attributes = append(f.Attributes, a)
		}
		if text == "customer:" {
			continue
		}
		f.Limit = 50
		list, _, err := h.DB.Tasks(t.Context(), f)
		h.Must(err)
		var ids []tasker.ID
		for _, task := range list {
			ids = append(ids, task.UUID)
		}
		if diff := cmp.Diff(found, ids); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	if n := strings.Count(said.String(), "skipped an attribute"); n != 1 || strings.Contains(said.String(), "many") {
		t.Errorf("it is logged %d times, want once, without values:\n%s", n, said.String())
	}
	if leftOut != 9 { // of none and long three each, of odd two, of null the due time
		t.Errorf("%d attributes are counted as left out", leftOut)
	}
	for text, wrong := range map[string]string{
		"client:x": "must be one of amount, customer, due, gift", "amount:x": "must be a number", "amount:NaN": "must be a number", "amount:>1e400": "must be a number", "amount:0x1p4": "must be a number", "amount:1_0": "must be a number", "amount:.5": "must be a number", "amount:> 5": "must be a number", "due:today": "must be a time", "gift:yes": "must be true or false",
	} {
		a, _ := tasker.ParseAttributeFilter(text)
		if _, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{a}}); tasker.CodeOf(err) != tasker.Invalid || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", text, err, wrong)
		}
	}
	without := access.WithPayloadScope(t.Context(), access.NamespaceScope("other"))
	if list, _, err := h.DB.Tasks(without, tasker.TaskFilter{Attributes: []tasker.AttributeFilter{{Name: "customer", Value: "ann"}}, Limit: 50}); err != nil || len(list) != 0 {
		t.Errorf("who may not read payloads finds %d tasks by them, %v", len(list), err)
	}
	// A task is shown with its attributes as filters ask for them, but in lists.
	for id, want := range map[tasker.ID][]string{ann: {"amount:25", "customer:ann", "due:2026-02-01T09:00:00.000000Z", "gift:true"}, none: {"gift:false"}} {
		task := h.Task(id)
		if diff := cmp.Diff(want, task.Attributes); diff != "" {
			t.Errorf("the attributes of a task (-want +got):\n%s", diff)
		}
		attributes, err := tasker.ParseAttributeFilters(task.Attributes)
		h.Must(err)
		list, _, err := h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: attributes, Limit: 1})
		if err != nil || len(list) != 1 || list[0].Attributes != nil {
			t.Errorf("by its attributes are found %+v, %v", list, err)
		}
	}
	if task, err := h.DB.Task(without, ann); err != nil || task.Attributes != nil {
		t.Errorf("who may not read payloads sees the attributes %v, %v", task.Attributes, err)
	}
}

func TestAttributeHasOneTypePerNamespace(t *testing.T) {
	h := newHarness(t)
	register := func(change func(*tasker.Template)) error {
		other := searched()
		change(&other)
		_, _, err := h.Engine.RegisterTemplate(t.Context(), other, "x")
		return err
	}
	number := map[string]tasker.SearchAttribute{"customer": {Type: tasker.AttributeNumber, From: "context.n"}}
	h.Must(register(func(*tasker.Template) {}))
	h.Must(register(func(o *tasker.Template) { o.Version = "1.1.0" }))
	h.Must(register(func(o *tasker.Template) { o.Namespace, o.Search = "other", number }))
	err := register(func(o *tasker.Template) { o.Name, o.Search = "second", number })
	if tasker.CodeOf(err) != tasker.Conflict || !strings.Contains(err.Error(), "search.customer: type number conflicts with type text in template "+enginetest.Namespace+"/searched 1.1.0") {
		t.Errorf("another type: %v", err)
	}
	if _, err := h.DB.Template(t.Context(), enginetest.Namespace, "second", ""); tasker.CodeOf(err) != tasker.NotFound {
		t.Errorf("the refused template: %v", err)
	}
	// A version that nobody used may be replaced, and its name is free then.
	for _, version := range []string{"1.0.0", "1.1.0"} {
		h.Must(register(func(o *tasker.Template) { o.Version, o.Search = version, nil }))
	}
	h.Must(register(func(o *tasker.Template) { o.Name, o.Search = "second", number }))
	list, _, err := h.DB.Attributes(t.Context(), enginetest.Namespace, 100, 0)
	h.Must(err)
	want := []tasker.Attribute{{Namespace: enginetest.Namespace, Name: "customer", Type: tasker.AttributeNumber, Templates: []string{"second"}}}
	if diff := cmp.Diff(want, list); diff != "" { // names that no template has any more are left out
		t.Error(diff)
	}
	_, _, err = h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{{Name: "due", Value: "2026-01-01T00:00:00Z"}}, Namespace: "other"})
	if tasker.CodeOf(err) != tasker.Invalid {
		t.Errorf("of another namespace: %v", err)
	}
}

// foundBy returns the tasks that an attribute finds, newest first.
func (h *harness) foundBy(text string) (ids []tasker.ID) {
	h.Helper()
	a, err := tasker.ParseAttributeFilter(text)
	h.Must(err)
	list, _, err := h.DB.Tasks(h.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{a}, Limit: 50})
	h.Must(err)
	for _, task := range list {
		ids = append(ids, task.UUID)
	}
	return ids
}

func (h *harness) wantFound(text string, want ...tasker.ID) {
	h.Helper()
	diff := cmp.Diff(want, h.foundBy(text))
	check(h, diff == "", "%s (-want +got):\n%s", text, diff)
}

func TestConcurrentTemplatesAgreeOnAttributeTypes(t *testing.T) {
	h := newHarness(t)
	h.Exec(`INSERT INTO tasker.attribute_names VALUES ($1, 'customer', 'bool')`, enginetest.Namespace) // no template has it any more
	failed := make(chan error, 4)
	for i, is := range []tasker.AttributeType{tasker.AttributeText, tasker.AttributeNumber, tasker.AttributeTime, tasker.AttributeText} {
		go func() {
			from := map[tasker.AttributeType]string{tasker.AttributeText: "context.a", tasker.AttributeNumber: "context.a", tasker.AttributeTime: "timestamp(context.a)"}[is]
			_, _, err := h.Engine.RegisterTemplate(t.Context(), tasker.Template{
				Namespace: enginetest.Namespace, Name: fmt.Sprintf("t%d", i), Version: "1.0.0", Steps: []tasker.StepTemplate{enginetest.Step("one")},
				Search: map[string]tasker.SearchAttribute{"customer": {Type: is, From: from}},
			}, "x")
			failed <- err
		}()
	}
	registered := 0
	for range cap(failed) {
		if err := <-failed; err == nil {
			registered++
		} else {
			h.WantCode(err, tasker.Conflict, "one type within a namespace")
		}
	}
	list, _, err := h.DB.Attributes(t.Context(), enginetest.Namespace, 10, 0)
	h.Must(err)
	check(t, len(list) == 1 && len(list[0].Templates) == registered && registered != 0,
		"%d templates are registered, and there is %+v", registered, list)
	h.WantCount(1, `SELECT count(DISTINCT configuration -> 'search' -> 'customer' ->> 'type') FROM tasker.task_templates WHERE name LIKE 't_'`)
}

func TestManyAttributesAreFound(t *testing.T) {
	h := newHarness(t)
	_, _, err := h.Engine.RegisterTemplate(t.Context(), searched(), "x")
	h.Must(err)
	h.Exec(`INSERT INTO tasker.attribute_names SELECT $1, 'a' || n, 'number' FROM generate_series(1, 1500) n`, enginetest.Namespace)
	h.Exec(`UPDATE tasker.task_templates SET attributes = attributes || ARRAY(SELECT 'a' || n FROM generate_series(1, 1500) n)`)
	h.wantFound("gift:true")
	_, _, err = h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: []tasker.AttributeFilter{{Name: "client", Value: "x"}}, Limit: 1})
	h.WantCode(err, tasker.Invalid, "unknown attribute \"client\": must be one of a1, a10", " and others")
	if len(err.Error()) > 300 {
		t.Errorf("the refusal has %d bytes", len(err.Error()))
	}
	seen := 0
	for more := true; more; {
		var list []tasker.Attribute
		list, more, err = h.DB.Attributes(t.Context(), "", 1000, seen)
		h.Must(err)
		seen += len(list)
	}
	equal(t, "attributes are listed", seen, 1504)
	_, _, err = h.DB.Tasks(t.Context(), tasker.TaskFilter{Attributes: make([]tasker.AttributeFilter, 11)})
	h.WantCode(err, tasker.Invalid, "too many attribute conditions: got 11")
}

func TestCancelledRequestSkipsNoAttribute(t *testing.T) {
	h := newHarness(t)
	var said bytes.Buffer
	leftOut := 0
	e := newEngine(h.DB, engine.Options{Log: slog.New(slog.NewTextHandler(&said, nil)), Hooks: enginetest.Hooks{Attribute: func(context.Context) { leftOut++ }}})
	_, _, err := e.RegisterTemplate(t.Context(), searched(), "x")
	h.Must(err)
	request := []tasker.NewTask{{Namespace: enginetest.Namespace, Name: "searched", Context: json.RawMessage(`{"customer": {"id": "ann"}, "amount": 1, "due": "2026-02-01T10:00:00Z"}`)}}
	_, err = e.CreateTasks(t.Context(), request) // from here on the template is remembered
	h.Must(err)
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err = e.CreateTasks(ended, request); !errors.Is(err, context.Canceled) {
		t.Errorf("a request that has ended: %v", err)
	}
	check(t, leftOut == 0 && said.Len() <= 0, "%d are left out: %s", leftOut, said.String())
}

func TestCostOfAttributesIsBoundedPerRequest(t *testing.T) {
	h := newHarness(t)
	dear := searched()
	dear.Search = map[string]tasker.SearchAttribute{}
	for i := range 10 { // each fails by its price, of which a tenth counts
		dear.Search[fmt.Sprint("b", i)] = tasker.SearchAttribute{Type: tasker.AttributeBool, From: worst}
	}
	h.RegisterTemplate(dear)
	request := tasker.NewTask{Namespace: enginetest.Namespace, Name: "searched", Context: json.RawMessage(`{"s": "` + strings.Repeat("a", 20_000) + `"}`)}
	many := slices.Repeat([]tasker.NewTask{request}, 1+tasker.MaxSearchCost/100_000)
	_, err := h.Engine.CreateTasks(t.Context(), many)
	h.WantCode(err, tasker.TooLarge, "search attributes", "create fewer at once")
	h.Must(errOf(h.Engine.CreateTasks(t.Context(), many[:99])))
}

// scored registers a template whose tasks are found by results.
func (h *harness) scored(version string, change ...func(*tasker.Template)) {
	h.Helper()
	of := tasker.Template{
		Namespace: h.Space, Name: "scored", Version: version,
		Steps: []tasker.StepTemplate{enginetest.Step("score"), enginetest.Once(enginetest.Step("review")), enginetest.Step("end", "score", "review")},
		Search: map[string]tasker.SearchAttribute{
			"customer": {Type: tasker.AttributeText, From: "context.of"},
			"risk":     {Type: tasker.AttributeNumber, From: "results.score.value"},
			"both":     {Type: tasker.AttributeText, From: "results.score.by + ' ' + results.review.by"},
		},
	}
	for _, c := range change {
		c(&of)
	}
	_, _, err := h.Engine.RegisterTemplate(h.Context(), of, "x")
	h.Must(err)
}

func (h *harness) scoredTask(customer string) tasker.ID {
	h.Helper()
	return h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "scored", Context: json.RawMessage(`{"of": "` + customer + `"}`)})
}

// claimNamed claims what there is, of which there is a step of this name for each task.
func (h *harness) claimNamed(name string) (list []tasker.Assignment) {
	h.Helper()
	for _, a := range h.Claim() {
		if a.Name == name {
			list = append(list, a)
		}
	}
	return list
}

func TestTasksAreFoundByResults(t *testing.T) {
	h := newHarness(t)
	h.scored("1.0.0")
	task := h.scoredTask("ann")
	h.WantCount(2, `SELECT count(*) FROM tasker.workflow_steps WHERE attributes_at = 'infinity'`)
	h.wantFound("customer:ann", task)
	work := map[string]tasker.Assignment{}
	for _, a := range h.Claim() {
		work[a.Name] = a
	}
	h.Accepted(success(work["score"], `{"value": 0.25, "by": "model"}`))
	h.wantFound("risk:0.25") // not within the report
	other := newEngine(h.DB, engine.Options{})
	if _, err := other.Tick(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.wantFound("risk:0.25", task)
	h.wantFound("both:model ann") // the other step is not done
	h.Accepted(failure(work["review"], false))
	h.Tick()
	h.wantFound("risk:>0", task)
	h.act(task, "review", tasker.CompleteManually, `{"by": "ann"}`)
	h.Tick()
	h.wantFound("both:model ann", task)
	h.wantFound("risk:0.25", task)
	h.wantFound("customer:ann", task)
	h.Complete("end")
	h.WantState(task, tasker.TaskComplete)
	h.WantCount(0, `SELECT count(*) FROM tasker.workflow_steps WHERE attributes_at < 'infinity'`)
	h.WantCount(3, `SELECT count(*) FROM tasker.task_attributes WHERE name IN ('customer', 'risk', 'both')`)
}

func TestInvalidAttributeResultIsSkipped(t *testing.T) {
	h := newHarness(t)
	leftOut := 0
	h.Engine = newEngine(h.DB, engine.Options{Hooks: enginetest.Hooks{Attribute: func(context.Context) { leftOut++ }}})
	h.scored("1.0.0", func(o *tasker.Template) { o.Steps[0] = enginetest.Once(o.Steps[0]) })
	again, odd := h.scoredTask("again"), h.scoredTask("odd")
	for _, a := range h.claimNamed("score") {
		if a.TaskUUID == odd {
			h.Accepted(success(a, `{"value": "high"}`))
		} else {
			h.Accepted(failure(a, false))
		}
	}
	h.Tick()
	h.wantFound("risk:>-1")
	equal(t, "skipped attributes", leftOut, 1)
	h.WantStep(odd, "score", tasker.StepComplete, 1)
	h.act(again, "score", tasker.ResetForRetry, "")
	h.Accepted(success(h.ClaimOne("score"), `{"value": 7}`))
	h.Tick()
	h.wantFound("risk:7", again)
	// The results that attributes name may be too large together.
	large := h.scoredTask("large")
	for _, a := range h.Claim() {
		h.Accepted(success(a, `{"value": 8, "by": "`+strings.Repeat("x", 200)+`"}`))
	}
	h.Exec(`UPDATE tasker.workflow_steps SET results_bytes = 3 << 20 WHERE task_uuid = $1 AND name IN ('score', 'review')`, large)
	leftOut = 0
	h.Tick()
	h.wantFound("risk:8")
	h.wantFound("customer:large", large)
	equal(t, "skipped attributes", leftOut, 1)
}

func TestAttributesFollowChildrenAndVersions(t *testing.T) {
	h := newHarness(t)
	h.scored("1.0.0")
	h.Template("parent", given(`{"of": context.name}`, child("scored", "start")))
	task := h.CreateWith(tasker.NewTask{Namespace: h.Space, Name: "parent", Context: json.RawMessage(`{"name": "ann"}`)})
	h.Tick()
	kid := h.childOf(task, "start")
	h.wantFound("customer:ann", kid)
	h.Accepted(success(h.claimNamed("score")[0], `{"value": 5, "by": "x"}`))
	h.Tick()
	h.wantFound("risk:5", kid)
	h.scored("2.0.0", func(o *tasker.Template) {
		o.Search = map[string]tasker.SearchAttribute{
			"customer": {Type: tasker.AttributeText, From: "'new ' + context.of"}, "score": {Type: tasker.AttributeNumber, From: "results.score.value + 1"},
			"end": {Type: tasker.AttributeBool, From: "results.end"},
		}
	})
	h.change(kid, "2.0.0")
	h.Tick()
	h.wantFound("customer:ann")
	h.wantFound("customer:new ann", kid)
	h.wantFound("score:6", kid)
	h.wantFound("risk:5")
	if got := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE task_uuid = $1 AND attributes_at = 'infinity'`, kid); got != 2 {
		t.Errorf("%d steps are named by the new version, want 2", got)
	}
	// A version that declares nothing leaves nothing.
	h.scored("3.0.0", func(o *tasker.Template) { o.Search = nil })
	h.change(kid, "3.0.0")
	h.Tick()
	h.wantFound("customer:new ann")
	if got := h.Count(`SELECT count(*) FROM tasker.workflow_steps WHERE attributes_at IS NOT NULL`); got != 0 {
		t.Errorf("%d steps are named by attributes that there are not", got)
	}
}
