package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/postgres"
)

// An operationVerb changes an operation, in the words of tasker-ctl.
type operationVerb struct {
	Word, Name, Key, Does string
	Long                  string
	Done                  string                  // the state after it, in words
	Final                 bool                    // it cannot be undone
	InPlace               bool                    // it is done on the page of the operation, and needs no other
	from                  []tasker.OperationState // in which it makes sense
}

const wordStart = "start"

var operationVerbs = []operationVerb{
	{
		Word: wordStart, Name: "Start…", Key: "r", Does: "start the operation", Done: "started", from: []tasker.OperationState{tasker.OperationPlanned},
		Long: "Servers release the steps in waves. The operation pauses automatically when too many fail again.",
	},
	{
		Word: "pause", Name: "Pause", Key: "h", Does: "pause the operation", Done: "paused", InPlace: true, from: []tasker.OperationState{tasker.OperationRunning},
		Long: "Nothing more is released until it is resumed. Released steps continue.",
	},
	{
		Word: wordResume, Name: "Resume", Key: "r", Does: "resume the operation", Done: "resumed", InPlace: true, from: []tasker.OperationState{tasker.OperationPaused},
		Long: "Continues this wave; failure counts reset.",
	},
	{
		Word: "abort", Name: "Abort…", Does: "abort the operation", Done: "aborted", Final: true, from: []tasker.OperationState{tasker.OperationPlanned, tasker.OperationRunning, tasker.OperationPaused},
		Long: "Nothing more is released. Released steps continue, and their outcome is recorded. An aborted operation cannot be started again.",
	},
}

// refusal says why the verb makes no sense for an operation; empty when it does.
func (v operationVerb) refusal(o tasker.Operation) string {
	if slices.Contains(v.from, o.State) {
		return ""
	}
	state := words(o.State)
	if o.EndedAt != nil {
		state = "finished"
	}
	return fmt.Sprintf("This operation is %s and can't be %s.", state, v.Done)
}

// An operationForm is an action on an operation.
type operationForm struct {
	*server
	form
	operationVerb
	Operation operationLine
	Digest    string         // of the plan that this page shows
	First     []itemLine     // of the items
	DryRun    *tasker.DryRun // nil where nothing is tried
	Refusals  []itemRefusal
	Enqueues  []tasker.ValueCount // the steps that would become ready
	Waves     []waveLine
	NoDryRun  string // why there is none

	Tolerate      string // as typed, of resume
	TolerateCause bool
}

// An itemRefusal is items that a dry run says would be skipped.
type itemRefusal struct {
	tasker.DryRunRefusal
	Why string
}

// Bounds of what the page of a plan shows.
const (
	shownItems  = 10
	dryRunItems = 1000
)

func (s *server) operationForm(req *request, v operationVerb) (*operationForm, error) {
	id, err := req.id("operation")
	if err != nil {
		return nil, err
	}
	o, err := s.DB.Operation(req.Context(), id)
	if err != nil {
		return nil, err
	}
	p := &operationForm{server: s, operationVerb: v, Operation: lineOf(o), Digest: o.PlanDigest, Waves: wavesOf(o)}
	name := strings.TrimSuffix(v.Name, "…")
	p.form = req.formOf(form{page: "operationaction", title: name + ": " + doesOf(o), nav: navOperations, Button: name, Back: operationPath(id), Danger: v.Final})
	p.Refused = v.refusal(o)
	if p.Tolerate, p.TolerateCause = strings.TrimSpace(req.typed("tolerate")), req.PostFormValue("tolerate_cause") != ""; p.Tolerate == "" && o.Guards.Tolerate != nil {
		p.Tolerate = o.Guards.Tolerate.String()
	}
	p.Command = p.command(req)
	if v.Word != wordStart {
		return p, nil
	}
	p.Button = doesOf(o)
	if len(o.Waves) > 0 && o.Items > o.Waves[0] {
		p.Button = "Start with " + count(o.Waves[0], itemNoun(o.Act))
	}
	list, _, err := s.DB.OperationItems(req.Context(), id, postgres.ItemFilter{Limit: shownItems})
	p.First = itemLines(list)
	if err == nil && p.Refused == "" && req.Method == http.MethodGet {
		err = p.tryIt(req.Context())
	}
	return p, err
}

// tryIt makes the dry run of a plan.
func (p *operationForm) tryIt(ctx context.Context) error {
	r, err := p.Operations.DryRun(ctx, p.Operation.UUID, 0, dryRunItems)
	if code := tasker.CodeOf(err); code == tasker.Conflict || code == tasker.Unavailable {
		p.NoDryRun = messageOf(err) // the plan can be started without
		return nil
	}
	if err != nil {
		return err
	}
	p.DryRun = &r
	for _, f := range r.Refused {
		p.Refusals = append(p.Refusals, itemRefusal{f, cmp.Or(outcomes[f.Outcome], words(f.Outcome))})
	}
	for name, n := range r.Enqueues {
		p.Enqueues = append(p.Enqueues, tasker.ValueCount{Value: name, Entries: int64(n)})
	}
	slices.SortFunc(p.Enqueues, func(a, b tasker.ValueCount) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Value, b.Value))
	})
	return nil
}

func (p *operationForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	switch seen := req.PostFormValue("seen"); {
	case seen == "":
		return nil, tasker.Errorf(tasker.Invalid, "the form does not say which state of the operation it shows: open it again")
	case seen != string(p.Operation.State):
		return nil, tasker.Errorf(tasker.Conflict, "the operation is %s now: if you still mean it, send it again", words(p.Operation.State))
	}
	ctx, id := req.Context(), p.Operation.UUID
	var err error
	switch p.Word {
	case wordStart:
		_, err = p.Operations.Start(ctx, id, req.PostFormValue("digest"), p.Actor)
	case "pause":
		_, err = p.Operations.Pause(ctx, id, p.Actor)
	case wordResume:
		var tolerate *tasker.FailureTolerance
		if tolerate, err = readTolerance(p.Tolerate); err == nil {
			_, err = p.Operations.Resume(ctx, id, p.Actor, tasker.ResumeOptions{Tolerate: tolerate, TolerateCause: p.TolerateCause})
		}
	default:
		_, err = p.Operations.Abort(ctx, id, p.Actor)
	}
	return &view{next: p.Back, note: "The operation was " + p.Done + "."}, err
}

// command returns the same from a terminal.
func (p *operationForm) command(req *request) command {
	actor, _ := p.placeholders()
	id := p.Operation.UUID.String()
	ctl := []string{"operation", p.Word, id}
	by := p.byInBody(actor)
	var body any = apiv1.ChangeOperation{By: by}
	switch p.Word {
	case wordStart:
		ctl = append(ctl, "--plan-digest", p.Digest)
		body = apiv1.StartOperation{PlanDigest: p.Digest, By: by}
	case wordResume:
		ctl = append(ctl, "--tolerate", p.Tolerate)
		if p.TolerateCause {
			ctl = append(ctl, "--tolerate-cause")
		}
		body = apiv1.ResumeOperation{By: by, Tolerate: p.Tolerate, TolerateCause: p.TolerateCause}
	}
	return commandOf(req, append(ctl, p.by("--by", actor)...), http.MethodPost, "/v1/operations/"+id+"/"+p.Word, body)
}
