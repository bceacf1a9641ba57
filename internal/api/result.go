package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"

	"tasker"
	"tasker/apiv1"
	"tasker/internal/payload"
)

// A reported is a batch of results of which each is still to be read: one that
// cannot be read must not hold up the others.
type reported struct {
	Results []json.RawMessage `json:"results"`
	Claim   *apiv1.ClaimSteps `json:"claim"`
}

func (s *server) reportResults(x *exchange) error {
	worker, err := x.id("worker_uuid")
	if err != nil {
		return err
	}
	req, err := x.readReported()
	if err != nil {
		return err
	}
	outcomes := make([]tasker.Outcome, 0, len(req.Results))
	rejected := []apiv1.RejectedResult{}
	for i, doc := range req.Results {
		o, err := readResult(doc)
		if err != nil {
			rejected = append(rejected, apiv1.RejectedResult{
				StepUUID: stepOf(doc), Code: string(tasker.Invalid), Message: fmt.Sprintf("results[%d]: %v", i, err),
			})
			continue
		}
		outcomes = append(outcomes, o)
	}
	claim := 0
	if req.Claim != nil && s.stopping.Err() == nil {
		claim = req.Claim.Max
	}
	receipt, err := s.engine.Report(x.ctx, worker, outcomes, claim)
	if err != nil {
		return err
	}
	if len(receipt.Next) > 0 && x.r.Context().Err() != nil {
		return s.giveBack(x, worker, receipt.Next)
	}
	for _, r := range receipt.Rejected {
		rejected = append(rejected, apiv1.RejectedResult{StepUUID: r.StepUUID.String(), Code: string(r.Code), Message: r.Message})
	}
	return x.answer(http.StatusOK, apiv1.ReportAnswer{
		Accepted: spell(receipt.Accepted, tasker.ID.String), Rejected: rejected, Steps: spell(receipt.Next, spellAssignment),
	})
}

// maxResults is how many results one request may report.
const maxResults = 1000

func (x *exchange) readReported() (reported, error) {
	var req reported
	doc, _, err := x.body()
	if err != nil {
		return req, err
	}
	if err := strictly(doc, &req); err != nil {
		return req, tasker.Errorf(tasker.Invalid, "the body is not {results: [...], claim}: %v", err)
	}
	var faults []tasker.Fault
	if req.Results == nil {
		faults = append(faults, tasker.Fault{Path: "results", Message: "is missing"})
	}
	if len(req.Results) > maxResults {
		faults = append(faults, tasker.Fault{Path: "results", Message: fmt.Sprintf("has %d elements; %d is the limit", len(req.Results), maxResults)})
	}
	if c := req.Claim; c != nil && (c.Max < 1 || c.Max > maxLimit) {
		faults = append(faults, tasker.Fault{Path: "claim.max", Message: fmt.Sprintf("must be from 1 to %d, not %d", maxLimit, c.Max)})
	}
	if len(faults) > 0 {
		return req, invalidBody(faults)
	}
	return req, nil
}

// strictly decodes a document that must have no key that v has not.
func strictly(doc []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(doc))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if dec.More() {
		return fmt.Errorf("there is more after the end of the document, at byte %d", dec.InputOffset())
	}
	return nil
}

// A rawResult is a result of which only the frame is understood.
type rawResult struct {
	StepUUID   string          `json:"step_uuid"`
	LeaseToken string          `json:"lease_token"`
	Success    *bool           `json:"success"`
	Result     json.RawMessage `json:"result"`
	Metadata   json.RawMessage `json:"metadata"`
	Error      json.RawMessage `json:"error"`
}

// readResult reads one result. Of a failure only the frame must be right.
func readResult(doc json.RawMessage) (tasker.Outcome, error) {
	var r rawResult
	if err := json.Unmarshal(doc, &r); err != nil {
		return tasker.Outcome{}, err
	}
	step, err := parseID(r.StepUUID)
	if err != nil {
		return tasker.Outcome{}, fmt.Errorf("step_uuid %w", err)
	}
	o := tasker.Outcome{Result: r.Result, Metadata: given(r.Metadata)}
	if o.Lease, err = tasker.ParseLease(step, r.LeaseToken); err != nil {
		return o, err
	}
	switch {
	case r.Success == nil:
		return o, fmt.Errorf("success is missing")
	case !*r.Success:
		o.Failure = readFailure(r.Error)
		return o, nil
	case given(r.Error) != nil:
		return o, fmt.Errorf("error is there although success is true")
	}
	o.Success = true
	return o, strictly(doc, &apiv1.Result{})
}

// maxMalformed is how much of an error that nobody understands is kept.
const maxMalformed = 8 << 10

// readFailure makes the best of the error of a failure.
func readFailure(doc json.RawMessage) *tasker.Failure {
	var e apiv1.ResultError
	if len(doc) == 0 || json.Unmarshal(doc, &e) == nil {
		return failureOf(e)
	}
	var text string
	if json.Unmarshal(doc, &text) == nil {
		return &tasker.Failure{Message: text, Type: "malformed_error", Retryable: true}
	}
	// What could be decoded of it counts: above all whether to try again.
	f := failureOf(e)
	f.Type = "malformed_error"
	f.Context = payload.CleanJSON(doc, payload.Limits{})
	if f.Message == "" {
		f.Message = payload.CleanText(string(doc), maxMalformed)
	}
	return f
}

// stepOf returns the step that a result names, however wrong the rest of it is.
func stepOf(doc json.RawMessage) string {
	var r struct {
		StepUUID any `json:"step_uuid"`
	}
	_ = json.Unmarshal(doc, &r)
	if r.StepUUID == nil {
		return ""
	}
	return shorten(fmt.Sprint(r.StepUUID))
}
