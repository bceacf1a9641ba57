package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/overload"
)

// maxLinkForm bounds an answer that is sent by a link, in bytes of the form.
const maxLinkForm = 256 << 10

// answerLinkRoutes are the page behind an answer link, and the page on which links are made.
func (s *server) answerLinkRoutes() []route {
	path := strings.TrimPrefix(tasker.AnswerLinkPath, Root) + "{token}"
	list := []route{
		{method: http.MethodGet, path: path, rule: public, serve: s.question},
		{method: http.MethodPost, path: path, rule: public, serve: s.answerByLink, most: maxLinkForm},
	}
	return append(list, actionRoutes(s, "/tasks/{task}/steps/{step}/links", access.OperateSteps, s.linkForm)...)
}

// guardToken keeps the address of a page, which is a secret, from other sites and from search
// engines. Browsers send such forms with the origin null: the token of the form, and that of the
// link, say where they come from.
func guardToken(h http.Header, r *http.Request) {
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	if r.Header.Get("Origin") == "null" {
		r.Header.Del("Origin")
	}
}

// A questionPage asks whoever has a link, and shows nothing else.
type questionPage struct {
	answerSheet
	tasker.AnswerQuestion
	Said    string // in place of the form
	Problem string
}

func (p *questionPage) view(status int) *view {
	return &view{page: "question", title: "Your answer", status: status, alone: true, body: p}
}

// linkMessagePage is a page that says why there is no form.
func linkMessagePage(status int, text string) *view { return (&questionPage{Said: text}).view(status) }

// What is said of a link that is not open. All that are worth nothing for other reasons read alike.
const (
	saidUsed    = "This link has been used: the question has its answer."
	saidExpired = "This link has expired. Ask whoever sent it for another one."
	saidInvalid = "This link is not valid, or not any more. Ask whoever sent it for another one."
	saidOften   = "Too many links from your address were not valid: try again in a minute."
	saidSent    = "Your answer was sent. You can close this page."
	saidReads   = "This server changes nothing now (ui.read_only): open the link again later."
)

// ofState is the page about a link that is not open.
func ofState(state tasker.AnswerLinkState) *view {
	if state == tasker.LinkUsed {
		return linkMessagePage(http.StatusGone, saidUsed)
	}
	return linkMessagePage(http.StatusGone, saidExpired)
}

// withLink calls do with the token of a link. Unknown tokens are counted by address, apart from
// failed sign-ins. A valid link is accepted from every address.
func (s *server) withLink(req *request, class overload.Class, do func(token string) (*view, error)) (*view, error) {
	from := req.address()
	leave, err := s.Gate.Acquire(req.Context(), class, "link:"+overload.Network(from).String())
	if err != nil {
		return nil, err
	}
	req.leave = leave
	v, err := do(req.PathValue("token"))
	if tasker.CodeOf(err) != tasker.NotFound {
		return v, err
	}
	if wait, ok := s.links.take(from, time.Now()); !ok {
		req.retryAfter(wait)
		return linkMessagePage(http.StatusTooManyRequests, saidOften), nil
	}
	return linkMessagePage(http.StatusNotFound, saidInvalid), nil
}

// question shows what is asked. It changes nothing, whoever follows the link and however often.
func (s *server) question(req *request) (*view, error) {
	return s.withLink(req, overload.Reads, func(token string) (*view, error) {
		q, err := s.Engine.AnswerQuestion(req.Context(), token)
		switch {
		case err != nil:
			return nil, err
		case q.State != tasker.LinkOpen:
			return ofState(q.State), nil
		case s.ReadOnly:
			return linkMessagePage(http.StatusForbidden, saidReads), nil
		}
		return (&questionPage{answerSheet: sheetOf(req, q.Form), AnswerQuestion: q}).view(http.StatusOK), nil
	})
}

// answerByLink takes an answer, and uses the link up.
func (s *server) answerByLink(req *request) (*view, error) {
	if s.ReadOnly {
		return linkMessagePage(http.StatusForbidden, saidReads), nil
	}
	return s.withLink(req, overload.Operations, func(token string) (*view, error) {
		q, err := s.Engine.AnswerQuestion(req.Context(), token)
		if err != nil {
			return nil, err
		}
		if q.State != tasker.LinkOpen {
			return ofState(q.State), nil
		}
		p := &questionPage{answerSheet: sheetOf(req, q.Form), AnswerQuestion: q}
		doc, err := p.answer()
		if err != nil {
			return p.refused(err)
		}
		state, answered, err := s.Engine.AnswerByLink(req.Context(), token, doc)
		switch {
		case err != nil:
			p.attachErrors(err)
			return p.refused(err)
		case !answered:
			return ofState(state), nil
		default:
			return linkMessagePage(http.StatusOK, saidSent), nil
		}
	})
}

// refused shows the form again with what is wrong.
func (p *questionPage) refused(err error) (*view, error) {
	if code := tasker.CodeOf(err); code != tasker.Invalid && code != tasker.TooLarge {
		return nil, err
	}
	p.Problem = messageOf(err)
	return p.view(apiv1.Status(tasker.CodeOf(err))), nil
}

// A linkForm makes and revokes the answer links of a step.
type linkForm struct {
	humanForm
	Links []tasker.AnswerLink
	Made  string // the address of the link that was made just now
	Until time.Time
	Hours string // as typed
}

func (s *server) linkForm(req *request) (*linkForm, error) {
	h, err := s.humanForm(req, form{page: "answerlink", title: "Answer link of step", Button: "Make a link"})
	if err != nil {
		return nil, err
	}
	p := &linkForm{humanForm: h, Hours: strconv.Itoa(int(tasker.DefaultAnswerLinkLife / time.Hour))}
	if req.Method == http.MethodPost {
		p.Hours = strings.TrimSpace(req.PostFormValue("hours"))
	}
	if p.Refused == "" && p.Assignee == "" {
		p.Refused = "Nobody in particular is to answer the step: assign it first."
	}
	if p.Links, err = s.Engine.AnswerLinks(req.Context(), h.StepRef); err != nil {
		return nil, err
	}
	p.Command = p.command(req)
	return p, nil
}

func (p *linkForm) do(req *request) (*view, error) {
	if err := p.identify(req); err != nil {
		return nil, err
	}
	if text := req.PostFormValue("revoke"); text != "" {
		var link tasker.ID
		if link.UnmarshalText([]byte(text)) != nil {
			return nil, tasker.Errorf(tasker.Invalid, "revoke must be the UUID of a link")
		}
		l, err := p.Engine.RevokeAnswerLink(req.Context(), p.StepRef, link, p.Actor)
		if err != nil {
			return nil, err
		}
		return &view{next: stepPath(p.StepRef) + "/links", note: "The link for " + l.Assignee + " is revoked."}, nil
	}
	hours, err := strconv.Atoi(p.Hours)
	if most := int(tasker.MaxAnswerLinkLife / time.Hour); err != nil || hours < 1 || hours > most {
		return nil, tasker.Errorf(tasker.Invalid, "say for how many hours, from 1 to %d", most)
	}
	made, err := p.Engine.CreateAnswerLink(req.Context(), p.StepRef, tasker.AnswerLinkRequest{Life: time.Duration(hours) * time.Hour, Actor: p.Actor})
	if err != nil {
		return nil, err
	}
	base := req.origin()
	if p.PublicURL != "" {
		base = strings.TrimSuffix(p.PublicURL, "/")
	}
	p.Made, p.Until = base+made.Path(), made.ExpiresAt
	return p.view(p, http.StatusCreated), nil // shown on this answer only, since nobody keeps it
}

// command makes the same link from a terminal.
func (p *linkForm) command(req *request) command {
	actor, _ := p.placeholders()
	seconds := int64(tasker.DefaultAnswerLinkLife / time.Second)
	body := apiv1.CreateAnswerLink{ExpiresInSeconds: &seconds, By: p.byInBody(actor)}
	ctl := append([]string{"task", "answer-link", p.Task.UUID.String(), p.Step.Name}, p.by("--by", actor)...)
	return commandOf(req, ctl, http.MethodPost, "/v1/tasks/"+p.Task.UUID.String()+"/workflow_steps/"+p.Step.UUID.String()+"/answer_links", body)
}
