package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
)

// operationVerb changes an operation.
type operationVerb struct {
	verb
	Done    string                  // past participle
	Final   bool                    // irreversible
	InPlace bool                    // a button on the page of the operation
	from    []tasker.OperationState // states that accept it
}

const wordStart = "start"

var operationVerbs = []operationVerb{
	{
		verb: verb{Word: wordStart, Name: "Start…", Key: "r", Does: "start the operation",
			Long: "Releases the steps in waves. The operation pauses automatically if too many fail again."},
		Done: "started", from: []tasker.OperationState{tasker.OperationPlanned},
	},
	{
		verb: verb{Word: wordPause, Name: "Pause", Key: "h", Does: "pause the operation",
			Long: "Releases no more steps until it is resumed. Released steps continue."},
		Done: "paused", InPlace: true, from: []tasker.OperationState{tasker.OperationRunning},
	},
	{
		verb: verb{Word: wordResume, Name: "Resume", Key: "r", Does: "resume the operation",
			Long: "Continues the current wave and resets the failure counts."},
		Done: "resumed", InPlace: true, from: []tasker.OperationState{tasker.OperationPaused},
	},
	{
		verb: verb{Word: "abort", Name: "Abort…", Does: "abort the operation",
			Long: "Releases no more steps. Released steps continue and their outcomes are recorded. An aborted operation cannot be started again."},
		Done: "aborted", Final: true,
		from: []tasker.OperationState{tasker.OperationPlanned, tasker.OperationRunning, tasker.OperationPaused},
	},
}

// checkOperation returns why an operation does not accept the action, or "" if it does.
func (v operationVerb) checkOperation(o tasker.Operation) string {
	if slices.Contains(v.from, o.State) {
		return ""
	}
	state := formatWords(o.State)
	if o.EndedAt != nil {
		state = "finished"
	}
	return fmt.Sprintf("This operation is %s and can't be %s.", state, v.Done)
}

// newOperationForm is the form for an action on an operation.
type operationForm struct {
	*server
	form
	operationVerb
	Operation operationLine
	Digest    string     // of the displayed plan
	First     []itemLine // first items
	DryRun    *tasker.DryRun
	Refusals  []itemRefusal
	Enqueues  []tasker.ValueCount // steps that would be enqueued
	Waves     []waveLine
	NoDryRun  string // why there is none

	Tolerate      string // as typed, for resume
	TolerateCause bool
}

// itemRefusal describes items that would be skipped, and why.
type itemRefusal struct {
	tasker.DryRunRefusal
	Why string
}

// Limits of a plan page.
const (
	shownItems  = 10
	dryRunItems = 1000
)

func (s *server) newOperationForm(req *request, v operationVerb) (*operationForm, error) {
	o, err := findByID(req, "operation", s.DB.Operation)
	if err != nil {
		return nil, err
	}
	p := &operationForm{server: s, operationVerb: v, Operation: newOperationLine(o), Digest: o.PlanDigest,
		Waves: newWaveLines(o)}
	p.form = req.newForm(form{
		page: "operationaction", title: v.button() + ": " + describeAction(o), nav: navOperations, Button: v.button(),
		Back: operationPath(o.UUID), Danger: v.Final,
	})
	p.Refused = v.checkOperation(o)
	p.Tolerate, p.TolerateCause = req.trimmedField("tolerate"), req.isChecked("tolerate_cause")
	if p.Tolerate == "" && o.Guards.Tolerate != nil {
		p.Tolerate = o.Guards.Tolerate.String()
	}
	p.Command = p.command(req)
	if v.Word != wordStart {
		return p, nil
	}
	p.Button = describeAction(o)
	if len(o.Waves) > 0 && o.Items > o.Waves[0] {
		p.Button = "Start with " + formatCount(o.Waves[0], itemNoun(o.Act))
	}
	list, _, err := s.DB.OperationItems(req.Context(), o.UUID, tasker.OperationItemFilter{Limit: shownItems})
	p.First = newItemLines(list)
	if err == nil && p.Refused == "" && req.Method == http.MethodGet {
		err = p.dryRun(req.Context())
	}
	return p, err
}

func (p *operationForm) dryRun(ctx context.Context) error {
	r, err := p.Operations.DryRun(ctx, p.Operation.UUID, 0, dryRunItems)
	if code := tasker.CodeOf(err); code == tasker.Conflict || code == tasker.Unavailable {
		p.NoDryRun = errorMessage(err) // the plan can still be started
		return nil
	}
	if err != nil {
		return err
	}
	p.DryRun = &r
	for _, f := range r.Refused {
		p.Refusals = append(p.Refusals, itemRefusal{f, cmp.Or(outcomes[f.Outcome], formatWords(f.Outcome))})
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
		return nil, tasker.Errorf(tasker.Invalid, "the form is missing the operation's state: reload the page")
	case seen != string(p.Operation.State):
		return nil, tasker.Errorf(tasker.Conflict, "the operation is now %s: check it and submit again", formatWords(p.Operation.State))
	}
	ctx, id := req.Context(), p.Operation.UUID
	var err error
	switch p.Word {
	case wordStart:
		_, err = p.Operations.Start(ctx, id, req.PostFormValue("digest"), p.Actor)
	case wordPause:
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

func (p *operationForm) command(req *request) command {
	actor, _ := p.placeholders()
	id := p.Operation.UUID.String()
	ctl := []string{"operation", p.Word, id}
	by := p.actorInBody(actor)
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
	return newCommand(req, append(ctl, p.actorFlags("--by", actor)...), http.MethodPost, "/v1/operations/"+id+"/"+p.Word,
		body)
}
