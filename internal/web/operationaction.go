package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
)

const wordStart = "start"

var operationVerbs = []verb{
	{
		Word: wordStart, Name: "Start…", Key: "r", Does: "start the operation", Done: "started", endpoint: endpoint.StartOperation,
		Long: "Releases the steps in waves. The operation pauses automatically if too many fail again.",
		from: []tasker.OperationState{tasker.OperationPlanned},
	},
	{
		Word: wordPause, Name: "Pause", Key: "h", Does: "pause the operation", Done: "paused", endpoint: endpoint.PauseOperation,
		Long: "Releases no more steps until it is resumed. Released steps continue.", InPlace: true,
		from: []tasker.OperationState{tasker.OperationRunning},
	},
	{
		Word: wordResume, Name: "Resume", Key: "r", Does: "resume the operation", Done: "resumed", endpoint: endpoint.ResumeOperation,
		Long: "Continues the current wave and resets the failure counts.", InPlace: true,
		from: []tasker.OperationState{tasker.OperationPaused},
	},
	{
		Word: "abort", Name: "Abort…", Does: "abort the operation", Done: "aborted", endpoint: endpoint.AbortOperation, Final: true,
		Long: "Releases no more steps. Released steps continue and their outcomes are recorded. An aborted operation cannot be started again.",
		from: []tasker.OperationState{tasker.OperationPlanned, tasker.OperationRunning, tasker.OperationPaused},
	},
}

// checkOperation returns why an operation does not accept the action, or "" if it does.
func (v verb) checkOperation(o tasker.Operation) string {
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
	form
	verb
	Operation tasker.Operation
	Computes  string // expression that computes the results of the steps
	Digest    string // of the displayed plan
	First     []tasker.OperationItem
	DryRun    *tasker.DryRun
	Enqueues  []tasker.ValueCount // steps that would be enqueued
	Waves     []waveLine
	NoDryRun  string // why there is none

	Tolerate      string // as typed, for resume
	TolerateCause bool
}

// Limits of a plan page.
const (
	shownItems  = 10
	dryRunItems = 1000
)

func (s *server) newOperationForm(req *request, v verb) *operationForm {
	o := loadByID(req, "operation", s.DB.Operation)
	p := &operationForm{
		verb: v, Operation: o, Computes: apiv1.FromOperation(o).Act.ResultExpression, Digest: o.PlanDigest, Waves: newWaveLines(o),
	}
	p.form = req.newForm(form{
		page: "operationaction", title: v.button() + ": " + describeAction(o), nav: navOperations, Button: v.button(),
		Back: operationPath(o.UUID), Danger: v.Final,
	})
	p.Refused = v.checkOperation(o)
	p.Tolerate, p.TolerateCause = req.trimmedField("tolerate"), req.isChecked("tolerate_cause")
	if p.Tolerate == "" && o.Guards.Tolerate != nil {
		p.Tolerate = o.Guards.Tolerate.String()
	}
	p.Command = p.command()
	if v.Word != wordStart || req.err() != nil {
		return p
	}
	p.Button = describeAction(o)
	if len(o.Waves) > 0 && o.Items > o.Waves[0] {
		p.Button = "Start with " + formatCount(o.Waves[0], itemNoun(o.Act))
	}
	list, _, err := s.DB.OperationItems(req.Context(), o.UUID, tasker.OperationItemFilter{Limit: shownItems})
	p.First = list
	if err == nil && p.Refused == "" && req.Method == http.MethodGet {
		err = p.dryRun(req.Context())
	}
	req.fail(err)
	return p
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

	for name, n := range r.Enqueues {
		p.Enqueues = append(p.Enqueues, tasker.ValueCount{Value: name, Entries: int64(n)})
	}
	slices.SortFunc(p.Enqueues, func(a, b tasker.ValueCount) int {
		return cmp.Or(cmp.Compare(b.Entries, a.Entries), cmp.Compare(a.Value, b.Value))
	})
	return nil
}

func (p *operationForm) do(req *request) (*view, error) {
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

func (p *operationForm) command() command {
	c := p.newCall(p.endpoint, "operation "+p.Word, p.Operation.UUID.String())
	switch p.Word {
	case wordStart:
		c.set("--plan-digest", "plan_digest", p.Digest)
	case wordResume:
		c.set("--tolerate", "tolerate", p.Tolerate)
		c.set("--tolerate-cause", "tolerate_cause", p.TolerateCause)
	}
	c.setActor("--by", "by")
	return c.format()
}
