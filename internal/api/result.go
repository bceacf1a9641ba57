package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/payload"
)

func (s *server) reportResults(x *request) error {
	worker := x.pathUUID("worker_uuid")
	key, err := s.loadLeaseKey(x.ctx)
	if err != nil {
		return err
	}
	req, err := x.readReportBody()
	if err != nil {
		return err
	}
	reports := readReports(req.results, key, worker)
	claim := 0
	if s.stopping.Err() == nil {
		claim = req.claim
	}
	deliver := s.engine.Report
	if req.ready {
		deliver = s.engine.ReportReady
	}
	receipt, err := deliver(x.ctx, worker, toOutcomes(reports), claim)
	if err != nil {
		return err
	}
	if len(receipt.Next) > 0 && x.r.Context().Err() != nil {
		return s.releaseUndelivered(x, worker, receipt.Next)
	}
	answer := buildReportAnswer(reports, receipt)
	answer.Steps = toClaimedSteps(key, worker, receipt.Next)
	err = x.respond(http.StatusOK, answer)
	if len(receipt.Next) == 0 || !errors.Is(err, errNoMemory) {
		return err
	}
	if err := s.releaseUndelivered(x, worker, receipt.Next); err != nil {
		return err
	}
	answer.Steps = []apiv1.ClaimedStep{}
	return x.respond(http.StatusOK, answer)
}

// toOutcomes returns the outcomes of the reports that were decoded without a fault.
func toOutcomes(reports []report) []tasker.Outcome {
	var list []tasker.Outcome
	for _, r := range reports {
		if r.fault == "" {
			list = append(list, r.outcome)
		}
	}
	return list
}

// buildReportAnswer builds the response. A failure with invalid parts is listed as rejected, although
// its attempt has failed.
func buildReportAnswer(reports []report, receipt tasker.Receipt) apiv1.ReportAnswer {
	answer := apiv1.ReportAnswer{Accepted: []string{}, Rejected: []apiv1.RejectedResult{}}
	doubts := map[tasker.ID]string{}
	for i, r := range reports {
		switch {
		case r.fault != "":
			answer.Rejected = append(answer.Rejected, apiv1.RejectedResult{
				StepUUID: r.step, Code: string(tasker.Invalid), Message: fmt.Sprintf("results[%d]%s", i, r.fault),
			})
		case r.doubt != "":
			doubts[r.outcome.StepUUID] = fmt.Sprintf("results[%d]%s; the attempt was failed with the valid part of the error", i, r.doubt)
		}
	}
	for _, step := range receipt.Accepted {
		if doubt, ok := doubts[step]; ok {
			answer.Rejected = append(answer.Rejected, apiv1.RejectedResult{StepUUID: step.String(), Code: string(tasker.Invalid), Message: doubt})
			continue
		}
		answer.Accepted = append(answer.Accepted, step.String())
	}
	for _, r := range receipt.Rejected {
		answer.Rejected = append(answer.Rejected, apiv1.RejectedResult{StepUUID: r.StepUUID.String(), Code: string(r.Code), Message: r.Message})
	}
	return answer
}

// maxResults is the maximum number of results in a request.
const maxResults = 1000

// reportBody is a batch of undecoded results: an invalid one must not affect the others.
type reportBody struct {
	results [][]member
	claim   int  // number of steps to claim
	ready   bool // claim only steps that become ready
}

// readReportBody validates the body like every other body, except for the results, which are validated
// one by one.
func (x *request) readReportBody() (reportBody, error) {
	var req reportBody
	doc, _, err := x.receivedBody()
	if err != nil {
		return req, err
	}
	r := payload.NewTolerantReader(doc)
	is := r.Kind()
	var members []member
	var faults []tasker.Fault
	r.Object(func(key string) {
		m := member{key: key}
		var wrong []tasker.Fault
		switch key {
		case "results":
			req.results, wrong = readFrames(r)
		case "claim":
			req.claim, wrong = x.readClaim(r.Value())
		case "claim_ready":
			req.ready, wrong = readClaimReady(r.Value())
		default:
			m.value = r.Value()
		}
		members, faults = append(members, m), append(faults, wrong...)
	})
	if _, wellFormed := r.End(); !wellFormed {
		return req, newInvalidJSONError(doc)
	}
	if is != payload.Object {
		return req, newInvalidBodyError([]tasker.Fault{{Message: "the body must be an object {results, claim, claim_ready}"}})
	}
	faults = append(checkFrame(members, "claim", "claim_ready", "results"), faults...)
	if !slices.ContainsFunc(members, func(m member) bool { return m.key == "results" }) {
		faults = append(faults, tasker.Fault{Path: "results", Message: "is missing"})
	}
	if len(faults) > 0 {
		return req, newInvalidBodyError(faults[:min(len(faults), maxFaults)])
	}
	return req, nil
}

// newInvalidJSONError returns an error with the position of the syntax error.
func newInvalidJSONError(doc []byte) error {
	faults, _ := payload.Faults(doc, payload.Limits{Bytes: len(doc), Depth: bodyDepth, Keys: bodyKeys}, 1)
	if len(faults) == 0 { // the two parsers disagree: reject it
		faults = []tasker.Fault{{Message: "malformed JSON"}}
	}
	return tasker.Errorf(tasker.Invalid, "invalid JSON in the body: %s", faults[0]).WithDetails(faults)
}

// checkFrame returns a fault for each duplicate or unknown key.
func checkFrame(members []member, known ...string) []tasker.Fault {
	var faults []tasker.Fault
	for i, m := range members {
		switch {
		case !slices.Contains(known, m.key) && isNull(m.value): // same as absent
		case !slices.Contains(known, m.key):
			faults = append(faults, tasker.Fault{Path: truncate(m.key), Message: "unknown key; known keys are " + strings.Join(known, ", ")})
		case slices.ContainsFunc(members[:i], func(before member) bool { return before.key == m.key }):
			faults = append(faults, tasker.Fault{Path: m.key, Message: "duplicate key"})
		}
		if len(faults) == maxFaults {
			break
		}
	}
	return faults
}

// readFrames splits the list of results without decoding them. A result without a valid step_uuid
// is a fault of the whole body, because the response could not refer to it.
func readFrames(r *payload.Reader) ([][]member, []tasker.Fault) {
	if is := r.Kind(); is != payload.Array {
		return nil, []tasker.Fault{{Path: "results", Message: fmt.Sprintf("must be an array, not %s", is)}}
	}
	var frames [][]member
	var faults []tasker.Fault
	count := 0
	r.Array(func(i int) {
		if count++; count > maxResults {
			return
		}
		path := fmt.Sprintf("results[%d]", i)
		if is := r.Kind(); is != payload.Object {
			faults = append(faults, tasker.Fault{Path: path, Message: fmt.Sprintf("must be an object, not %s", is)})
			return
		}
		frame := readMembers(r)
		frames = append(frames, frame)
		if wrong := checkStep(frame); wrong != "" {
			faults = append(faults, tasker.Fault{Path: path + ".step_uuid", Message: wrong})
		}
	})
	if count > maxResults {
		return nil, []tasker.Fault{{Path: "results", Message: fmt.Sprintf("has %d elements; the limit is %d", count, maxResults)}}
	}
	return frames, faults
}

// checkStep describes what is wrong with the step_uuid of a result, or returns "".
func checkStep(result []member) string {
	found, wrong := 0, ""
	for _, m := range result {
		if m.key != "step_uuid" {
			continue
		}
		found++
		if is := payload.KindOf(m.value); is != payload.String {
			wrong = fmt.Sprintf("must be a string, not %s", is)
		}
	}
	switch found {
	case 0:
		return "is missing"
	case 1:
		return wrong
	default:
		return "duplicate key"
	}
}

func (x *request) readClaim(doc json.RawMessage) (int, []tasker.Fault) {
	if nullToNil(doc) == nil {
		return 0, nil
	}
	faults, _ := x.server.check(x.server.claim, doc, payload.Limits{})
	for i, f := range faults {
		faults[i] = tasker.Fault{Path: joinPath("claim", f.Path), Message: f.Message}
		if f.Path == "" {
			faults[i].Path = "claim"
		}
	}
	var claim apiv1.ClaimSteps
	if len(faults) == 0 && json.Unmarshal(doc, &claim) != nil {
		faults = []tasker.Fault{{Path: "claim", Message: "must be {max}"}}
	}
	return claim.Max, faults
}

func readClaimReady(doc json.RawMessage) (ready bool, faults []tasker.Fault) {
	if nullToNil(doc) != nil && json.Unmarshal(doc, &ready) != nil {
		return false, []tasker.Fault{{Path: "claim_ready", Message: "must be true or false"}}
	}
	return ready, nil
}

// member is a key of an object with its undecoded value.
type member struct {
	key   string
	value json.RawMessage
}

// readMembers returns the members of the next object in order, including duplicates.
func readMembers(r *payload.Reader) (members []member) {
	r.Object(func(key string) { members = append(members, member{key, r.Value()}) })
	return members
}

func decodeString(value json.RawMessage) (s string, ok bool) {
	r := payload.NewTolerantReader(value)
	ok = r.Kind() == payload.String
	return strings.ToValidUTF8(r.Text(), "\uFFFD"), ok
}

func isNull(value json.RawMessage) bool { return payload.KindOf(value) == payload.Null }

// report is a decoded result.
type report struct {
	step    string // as sent by the worker
	outcome tasker.Outcome
	fault   string // why it is rejected
	doubt   string // the part of a failure that is invalid
}

func readReports(frames [][]member, key leaseKey, worker tasker.ID) []report {
	reports := make([]report, len(frames))
	for i, members := range frames {
		reports[i].read(members, key, worker)
	}
	return reports
}

var resultKeys = []string{"error", "lease_token", "metadata", "result", "step_uuid", "success"}

// read decodes a result. A failure is accepted even if parts other than success and lease_token are
// invalid.
func (r *report) read(members []member, key leaseKey, worker tasker.ID) {
	value := map[string]json.RawMessage{}
	for _, m := range members {
		value[m.key] = m.value
	}
	r.step, _ = decodeString(value["step_uuid"])
	step, err := parseID(r.step)
	if err != nil {
		r.step, r.fault = truncate(r.step), ".step_uuid: "+err.Error()
		return
	}
	success := string(value["success"])
	wrong := checkFrame(members, resultKeys...)
	if success == "false" {
		wrong = slices.DeleteFunc(wrong, func(f tasker.Fault) bool { return f.Path != "success" && f.Path != "lease_token" })
	}
	var token string
	var isText bool
	if value["lease_token"] != nil {
		token, isText = decodeString(value["lease_token"])
	}
	switch {
	case len(wrong) > 0:
		r.fault = "." + wrong[0].String()
	case value["lease_token"] == nil:
		r.fault = ".lease_token: is missing"
	case !isText:
		r.fault = ".lease_token: must be a string, not " + string(payload.KindOf(value["lease_token"]))
	case success == "":
		r.fault = ".success: is missing"
	case success != "true" && success != "false":
		r.fault = ".success: must be true or false, not " + string(payload.KindOf(value["success"]))
	case success == "true" && nullToNil(value["error"]) != nil:
		r.fault = ".error: must be absent if success is true"
	}
	if r.fault != "" {
		return
	}
	lease, err := key.parseToken(worker, step, token)
	if err != nil {
		r.fault = ": " + err.Error()
		return
	}
	r.outcome = tasker.Outcome{Lease: lease, Success: success == "true", Result: value["result"], Metadata: nullToNil(value["metadata"])}
	if !r.outcome.Success {
		r.outcome.Failure, r.doubt = readFailure(value["error"])
		for _, f := range checkFrame(members, resultKeys...) {
			if f.Path == "error" && r.doubt == "" {
				r.doubt = ".error: " + f.Message
			}
		}
	}
}
