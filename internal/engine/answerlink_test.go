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
	h.tick()
	step = tasker.StepRef{TaskUUID: task, StepUUID: h.step(task, "answer").UUID}
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

func (h *harness) want(what, got, want string) {
	h.Helper()
	if got != want {
		h.Errorf("%s: %q, want %q", what, got, want)
	}
}

// A link answers a step once. What is stored does not tell its token, and history and audit log say
// that it was a link, and whose.
func TestALinkAnswersAStepOnce(t *testing.T) {
	t.Parallel()
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
	if n := h.Count(`SELECT count(*) FROM tasker.answer_links l WHERE encode(digest, 'hex') = $1 AND strpos(l::text, $2) = 0`, hex.EncodeToString(sum[:]), l.Token[4:]); n != 1 {
		t.Error("the token is not stored as its digest alone")
	}
	q, err := h.Engine.AnswerQuestion(h.Context(), l.Token)
	h.Must(err)
	h.want("question", fmt.Sprint(q.State, q.Step, q.Assignee, string(q.Form) != ""), "openanswerann"+"true")
	h.want("an answer that the form refuses", h.byLink(l.Token, `{}`), "INVALID")
	h.want("after that", string(h.links(step)[0]), "open")

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
	if took != 1 {
		t.Errorf("%d of 8 answers were taken: %q", took, states)
	}
	h.wantStep(step.TaskUUID, "answer", tasker.StepComplete, 0)
	if n := h.Count(`SELECT count(*) FROM tasker.step_history WHERE step_uuid = $1 AND event = 'complete_external' AND actor = 'link:ann'`, step.StepUUID); n != 1 {
		t.Error("the history does not say that it was a link")
	}
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE subject = $1 AND (action, actor) IN (('step.link_created', 'boss'), ('step.link_used', 'link:ann'))`, step.StepUUID.String()); n != 2 {
		t.Errorf("the audit log has %d lines", n)
	}
	h.want("again", h.byLink(l.Token, `{"ok": 1}`), "used false")
	q, err = h.Engine.AnswerQuestion(h.Context(), l.Token)
	h.Must(err)
	h.want("question after it", fmt.Sprint(q.State, q.Step, q.Assignee), "used")
	_, err = h.Engine.RevokeAnswerLink(h.Context(), step, l.UUID, "boss")
	h.wantCode(err, tasker.Conflict, "revoking a used link")

	_, err = h.Engine.OperateStep(h.Context(), step.TaskUUID, step.StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "boss", Reason: "again"})
	h.wantCode(err, tasker.Conflict, "resetting a complete step")
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

// A link is worth nothing once it is revoked or expired, or the step waits for somebody else, has its
// answer, or waits anew. All but expired links read as one that never was.
func TestALinkThatIsWorthNothing(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	step, link := h.linked()
	assign := func(to string) {
		t.Helper()
		_, err := h.Engine.Assign(h.Context(), step, tasker.AssignRequest{Assignee: to, Actor: "boss"})
		h.Must(err)
	}
	revoked, expired, elsewhere := link(), link(), link()
	for range 2 { // the second time changes nothing
		_, err := h.Engine.RevokeAnswerLink(h.Context(), step, revoked.UUID, "boss")
		h.Must(err)
	}
	h.Exec(`UPDATE tasker.answer_links SET expires_at = now() WHERE link_uuid = $1`, expired.UUID)
	assign("bob")
	h.want("states", fmt.Sprint(h.links(step)), "[void expired revoked]")
	h.want("expired", h.byLink(expired.Token, `{"ok":1}`), "expired false")
	q, err := h.Engine.AnswerQuestion(h.Context(), expired.Token)
	h.Must(err)
	h.want("question of an expired link", fmt.Sprint(q), fmt.Sprint(tasker.AnswerQuestion{State: tasker.LinkExpired}))
	waits := link()
	_, err = h.Engine.Tick(t.Context())
	h.Must(err)
	h.aWeekLater() // nobody answers in time
	h.wantStep(step.TaskUUID, "answer", tasker.StepError, 0)
	h.Exec(`UPDATE tasker.answer_links SET expires_at = now() + interval '1 hour' WHERE link_uuid <> $1`, expired.UUID)
	_, err = h.Engine.OperateStep(h.Context(), step.TaskUUID, step.StepUUID, tasker.ActionRequest{Action: tasker.ResetForRetry, Actor: "boss", Reason: "again"})
	h.Must(err)
	never := "tsl_" + strings.Repeat("A", 26)
	var said string
	for name, token := range map[string]string{"revoked": revoked.Token, "assigned to somebody else": elsewhere.Token, "reset": waits.Token, "never": never, "no token": "x"} {
		h.want(name, h.byLink(token, `{"ok":1}`), "NOT_FOUND")
		_, err := h.Engine.AnswerQuestion(h.Context(), token)
		h.wantCode(err, tasker.NotFound, name)
		if said == "" {
			said = fmt.Sprint(err)
		}
		h.want(name, fmt.Sprint(err), said)
	}
	h.wantInbox("nobody has answered", "bob")

	other := link()
	_, err = h.Engine.CompleteExternal(h.Context(), step.TaskUUID, step.StepUUID, tasker.Outcome{Success: true, Result: json.RawMessage(`{"ok":2}`)}, "bob")
	h.Must(err)
	h.want("the step has its answer", h.byLink(other.Token, `{"ok":2}`), "NOT_FOUND")
	_, err = h.Engine.RevokeAnswerLink(h.Context(), step, tasker.NewID(), "boss")
	h.wantCode(err, tasker.NotFound, "no such link")
	if n := h.Count(`SELECT count(*) FROM tasker.audit_events WHERE subject = $1 AND action = 'step.link_revoked' AND actor = 'boss'`, step.StepUUID.String()); n != 1 {
		t.Errorf("the audit log says %d times that a link was revoked", n)
	}
}

// Links are bounded in number and time, and are made only for a step that waits for somebody.
func TestLinksAreBounded(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	step, link := h.linked()
	for name, r := range map[string]tasker.AnswerLinkRequest{
		"too short": {Actor: "boss", Life: time.Second}, "too long": {Actor: "boss", Life: 31 * 24 * time.Hour}, "by nobody": {},
	} {
		_, err := h.Engine.CreateAnswerLink(h.Context(), step, r)
		h.wantCode(err, tasker.Invalid, name)
	}
	for range 2 {
		for range tasker.MaxOpenAnswerLinks {
			link()
		}
		_, err := h.Engine.CreateAnswerLink(h.Context(), step, tasker.AnswerLinkRequest{Actor: "boss"})
		h.wantCode(err, tasker.Conflict, "one too many")
		h.Exec(`UPDATE tasker.answer_links SET expires_at = now() WHERE used_at IS NULL`)
	}
	last := link()
	if list := h.links(step); len(list) != tasker.MaxEndedAnswerLinks+1 || list[0] != tasker.LinkOpen {
		t.Errorf("%d links are kept: %q", len(list), list)
	}
	_, err := h.Engine.Assign(h.Context(), step, tasker.AssignRequest{Actor: "boss"})
	h.Must(err)
	_, err = h.Engine.CreateAnswerLink(h.Context(), step, tasker.AnswerLinkRequest{Actor: "boss"})
	h.wantCode(err, tasker.Conflict, "has no assignee")
	h.Must(h.Engine.CancelTask(h.Context(), step.TaskUUID, "boss", "why"))
	_, err = h.Engine.CreateAnswerLink(h.Context(), step, tasker.AnswerLinkRequest{Actor: "boss"})
	h.wantCode(err, tasker.Conflict, "of a task that has ended")
	h.want("a link of it", h.byLink(last.Token, `{"ok":1}`), "NOT_FOUND")
	_, err = h.Engine.AnswerLinks(h.Context(), tasker.StepRef{TaskUUID: step.TaskUUID, StepUUID: tasker.NewID()})
	h.wantCode(err, tasker.NotFound, "no such step")
}
