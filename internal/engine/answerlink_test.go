package engine_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tasker.example/tasker"
)

// linked is a step that waits for ann, and can be reset.
func (h *harness) linked() (step tasker.StepRef, link func() tasker.NewAnswerLink) {
	h.Helper()
	h.Template("approve", timed("", asked(func(s *tasker.StepTemplate) {
		s.Assignee, s.Form = "ann", []byte(`{"type":"object","required":["ok"]}`)
	})))
	task := h.Create("approve")
	h.Tick()
	step = tasker.StepRef{TaskUUID: task, StepUUID: h.Step(task, "answer").UUID}
	return step, func() tasker.NewAnswerLink {
		h.Helper()
		l, err := h.Engine.CreateAnswerLink(h.Context(), step, tasker.AnswerLinkRequest{Actor: "boss"})
		h.Must(err)
		return l
	}
}

// byLink answers by a link, and returns what became of it.
func (h *harness) byLink(token, doc string) string {
	h.Helper()
	state, answered, err := h.Engine.AnswerByLink(h.Context(), token, json.RawMessage(doc))
	if err != nil {
		return string(tasker.CodeOf(err))
	}
	return fmt.Sprint(state, " ", answered)
}

func TestAnswerLinkWorksOnce(t *testing.T) {
	h := newHarness(t)
	step, link := h.linked()
	l := link()
	if !strings.HasPrefix(l.Token, "tsl_") || len(l.Token) != 30 || l.Path() != "/ui/answer/"+l.Token || l.State != tasker.LinkOpen || l.Assignee != "ann" {
		t.Errorf("%+v", l)
	}
	if life := l.ExpiresAt.Sub(l.CreatedAt); life < tasker.DefaultAnswerLinkLife-time.Second || life > tasker.DefaultAnswerLinkLife+time.Second {
		t.Errorf("it lives for %s", life)
	}
	sum := sha256.Sum256([]byte(l.Token))
	h.WantCount(1, `SELECT count(*) FROM tasker.answer_links l WHERE encode(digest, 'hex') = $1 AND strpos(l::text, $2) = 0`, hex.EncodeToString(sum[:]), l.Token[4:])
	q, err := h.Engine.AnswerQuestion(h.Context(), l.Token)
	h.Must(err)
	equal(h, "question", fmt.Sprint(q.State, q.Step, q.Assignee, string(q.Form) != ""), "openanswerann"+"true")
	equal(h, "an answer that the form refuses", h.byLink(l.Token, `{}`), "INVALID")
	equal(h, "after that", string(h.links(step)[0]), "open")

	states := make([]string, 8)
	var all sync.WaitGroup
	for i := range states {
		all.Go(func() { states[i] = h.byLink(l.Token, fmt.Sprintf(`{"ok": %d}`, i)) })
	}
	all.Wait()
	took := 0
	for _, s := range states {
		switch s {
		case "used true":
			took++
		case "used false":
		default:
			t.Errorf("answered with %q", s)
		}
	}
	check(t, took == 1, "%d of 8 answers were taken: %q", took, states)
	h.WantStep(step.TaskUUID, "answer", tasker.StepComplete, 0)
	h.WantCount(1, `SELECT count(*) FROM tasker.step_history WHERE step_uuid = $1 AND event = 'complete_external' AND actor = 'link:ann'`, step.StepUUID)
	h.WantCount(2, `SELECT count(*) FROM tasker.audit_events WHERE subject = $1 AND (action, actor) IN (('step.link_created', 'boss'), ('step.link_used', 'link:ann'))`, step.StepUUID.String())
	equal(h, "again", h.byLink(l.Token, `{"ok": 1}`), "used false")
	q, err = h.Engine.AnswerQuestion(h.Context(), l.Token)
	h.Must(err)
	equal(h, "question after it", fmt.Sprint(q.State, q.Step, q.Assignee), "used")
	_, err = h.Engine.RevokeAnswerLink(h.Context(), step, l.UUID, "boss")
	h.WantCode(err, tasker.Conflict)

	_, err = h.Engine.OperateStep(h.Context(), step.TaskUUID, step.StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "boss", Reason: "again"})
	h.WantCode(err, tasker.Conflict)
}

// links are the states of the links of a step, newest first.
func (h *harness) links(step tasker.StepRef) (list []tasker.AnswerLinkState) {
	h.Helper()
	found, err := h.Engine.AnswerLinks(h.Context(), step)
	h.Must(err)
	for _, l := range found {
		list = append(list, l.State)
	}
	return list
}

func TestInvalidAnswerLinksAreNotFound(t *testing.T) {
	h := newHarness(t)
	step, link := h.linked()
	assign := func(to string) {
		t.Helper()
		h.Must(errOf(h.Engine.Assign(h.Context(), step, tasker.AssignRequest{Assignee: to, Actor: "boss"})))
	}
	revoked, expired, elsewhere := link(), link(), link()
	for range 2 { // the second time changes nothing
		h.Must(errOf(h.Engine.RevokeAnswerLink(h.Context(), step, revoked.UUID, "boss")))
	}
	h.Exec(`UPDATE tasker.answer_links SET expires_at = now() WHERE link_uuid = $1`, expired.UUID)
	assign("bob")
	equal(h, "states", fmt.Sprint(h.links(step)), "[void expired revoked]")
	equal(h, "expired", h.byLink(expired.Token, `{"ok":1}`), "expired false")
	q, err := h.Engine.AnswerQuestion(h.Context(), expired.Token)
	h.Must(err)
	equal(h, "question of an expired link", fmt.Sprint(q), fmt.Sprint(tasker.AnswerQuestion{State: tasker.LinkExpired}))
	waits := link()
	h.Must(errOf(h.Engine.Tick(t.Context())))
	h.aWeekLater() // nobody answers in time
	h.WantStep(step.TaskUUID, "answer", tasker.StepError, 0)
	h.Exec(`UPDATE tasker.answer_links SET expires_at = now() + interval '1 hour' WHERE link_uuid <> $1`, expired.UUID)
	_, err = h.Engine.OperateStep(h.Context(), step.TaskUUID, step.StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "boss", Reason: "again"})
	h.Must(err)
	never := "tsl_" + strings.Repeat("A", 26)
	var said string
	for name, token := range map[string]string{"revoked": revoked.Token, "assigned to somebody else": elsewhere.Token, "reset": waits.Token, "never": never, "no token": "x"} {
		equal(h, name, h.byLink(token, `{"ok":1}`), "NOT_FOUND")
		h.WantCode(errOf(h.Engine.AnswerQuestion(h.Context(), token)), tasker.NotFound)
		if said == "" {
			said = fmt.Sprint(err)
		}
		equal(h, name, fmt.Sprint(err), said)
	}
	h.wantInbox("nobody has answered", "bob")

	other := link()
	_, err = h.Engine.CompleteExternal(h.Context(), step.TaskUUID, step.StepUUID, tasker.Outcome{Success: true, Result: json.RawMessage(`{"ok":2}`)}, "bob")
	h.Must(err)
	equal(h, "the step has its answer", h.byLink(other.Token, `{"ok":2}`), "NOT_FOUND")
	_, err = h.Engine.RevokeAnswerLink(h.Context(), step, tasker.NewID(), "boss")
	h.WantCode(err, tasker.NotFound)
	h.WantCount(1, `SELECT count(*) FROM tasker.audit_events WHERE subject = $1 AND action = 'step.link_revoked' AND actor = 'boss'`, step.StepUUID.String())
}

func TestAnswerLinksAreBounded(t *testing.T) {
	h := newHarness(t)
	step, link := h.linked()
	for _, r := range map[string]tasker.AnswerLinkRequest{
		"too short": {Actor: "boss", Life: time.Second}, "too long": {Actor: "boss", Life: 31 * 24 * time.Hour}, "by nobody": {},
	} {
		h.WantCode(errOf(h.Engine.CreateAnswerLink(h.Context(), step, r)), tasker.Invalid)
	}
	for range 2 {
		for range tasker.MaxOpenAnswerLinks {
			link()
		}
		_, err := h.Engine.CreateAnswerLink(h.Context(), step, tasker.AnswerLinkRequest{Actor: "boss"})
		h.WantCode(err, tasker.Conflict)
		h.Exec(`UPDATE tasker.answer_links SET expires_at = now() WHERE used_at IS NULL`)
	}
	last := link()
	if list := h.links(step); len(list) != tasker.MaxEndedAnswerLinks+1 || list[0] != tasker.LinkOpen {
		t.Errorf("%d links are kept: %q", len(list), list)
	}
	h.Must(errOf(h.Engine.Assign(h.Context(), step, tasker.AssignRequest{Actor: "boss"})))
	_, err := h.Engine.CreateAnswerLink(h.Context(), step, tasker.AnswerLinkRequest{Actor: "boss"})
	h.WantCode(err, tasker.Conflict)
	h.Must(h.Engine.CancelTask(h.Context(), step.TaskUUID, "boss", "why"))
	_, err = h.Engine.CreateAnswerLink(h.Context(), step, tasker.AnswerLinkRequest{Actor: "boss"})
	h.WantCode(err, tasker.Conflict)
	equal(h, "a link of it", h.byLink(last.Token, `{"ok":1}`), "NOT_FOUND")
	_, err = h.Engine.AnswerLinks(h.Context(), tasker.StepRef{TaskUUID: step.TaskUUID, StepUUID: tasker.NewID()})
	h.WantCode(err, tasker.NotFound)
}
