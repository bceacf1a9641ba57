package web

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/apiv1"
	"tasker.example/tasker/internal/endpoint"
	"tasker.example/tasker/internal/overload"
)

// maxLinkForm limits the form of an answer link, in bytes.
const maxLinkForm = 256 << 10

// setTokenHeaders hides the secret address of an answer link from other sites and search engines.
// Browsers then send the form with the origin null, which hostguard would reject. The form token
// and the link token protect the form instead.
func setTokenHeaders(h http.Header, r *http.Request) {
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	if r.Header.Get("Origin") == "null" {
		r.Header.Del("Origin")
	}
}

// questionPage shows the question of an answer link and nothing else.
type questionPage struct {
	answerSheet
	tasker.AnswerQuestion
	Said    string // message instead of the form
	Problem string
}

func (p *questionPage) view(status int) *view {
	return &view{page: "question", title: "Your answer", status: status, alone: true, body: p}
}

// newLinkMessageView returns a page that shows a message instead of the form.
func newLinkMessageView(status int, text string) *view {
	return (&questionPage{Said: text}).view(status)
}

// The messages about links. All invalid links have the same message, so that it reveals nothing
// about them.
const (
	linkUsed     = "This link has been used: the question is answered."
	linkExpired  = "This link has expired. Ask the sender for a new one."
	linkInvalid  = "This link is invalid or no longer valid. Ask the sender for a new one."
	linkTooOften = "Too many invalid links from your address. Try again in a minute."
	linkAnswered = "Your answer was sent. You can close this page."
	linkReadOnly = "This server is read-only (ui.read_only). Try again later."
)

// newClosedLinkView returns the page for a link that is not open.
func newClosedLinkView(state tasker.AnswerLinkState) *view {
	if state == tasker.LinkUsed {
		return newLinkMessageView(http.StatusGone, linkUsed)
	}
	return newLinkMessageView(http.StatusGone, linkExpired)
}

// withLink calls do with the question of an open link. It limits requests with invalid tokens per
// address, but accepts a valid link from any address.
func (s *server) withLink(req *request, class overload.Class, do func(*questionPage) (*view, error)) (*view, error) {
	from := req.remoteAddress()
	leave, err := s.Gate.Acquire(req.Context(), class, "link:"+overload.Network(from).String())
	if err != nil {
		return nil, err
	}
	req.leave = leave
	q, err := s.Engine.AnswerQuestion(req.Context(), req.PathValue("token"))
	var v *view
	switch {
	case err != nil:
	case q.State != tasker.LinkOpen:
		return newClosedLinkView(q.State), nil
	default:
		v, err = do(&questionPage{answerSheet: newAnswerSheet(req, q.Form), AnswerQuestion: q})
	}
	if tasker.CodeOf(err) != tasker.NotFound {
		return v, err
	}
	if wait, ok := s.links.take(from, time.Now()); !ok {
		req.setRetryAfter(wait)
		return newLinkMessageView(http.StatusTooManyRequests, linkTooOften), nil
	}
	return newLinkMessageView(http.StatusNotFound, linkInvalid), nil
}

// showQuestion shows the question of an answer link. Opening a link changes nothing.
func (s *server) showQuestion(req *request) (*view, error) {
	return s.withLink(req, overload.Reads, func(p *questionPage) (*view, error) {
		if s.ReadOnly {
			return newLinkMessageView(http.StatusForbidden, linkReadOnly), nil
		}
		return p.view(http.StatusOK), nil
	})
}

// answerByLink stores an answer and invalidates the link.
func (s *server) answerByLink(req *request) (*view, error) {
	if s.ReadOnly {
		return newLinkMessageView(http.StatusForbidden, linkReadOnly), nil
	}
	return s.withLink(req, overload.Operations, func(p *questionPage) (*view, error) {
		doc, err := p.encodeAnswer()
		if err != nil {
			return p.showRejection(err)
		}
		state, answered, err := s.Engine.AnswerByLink(req.Context(), req.PathValue("token"), doc)
		switch {
		case err != nil:
			p.attachErrors(err)
			return p.showRejection(err)
		case !answered:
			return newClosedLinkView(state), nil
		default:
			return newLinkMessageView(http.StatusOK, linkAnswered), nil
		}
	})
}

// showRejection shows the form again with the error.
func (p *questionPage) showRejection(err error) (*view, error) {
	if code := tasker.CodeOf(err); code != tasker.Invalid && code != tasker.TooLarge {
		return nil, err
	}
	p.Problem = errorMessage(err)
	return p.view(apiv1.Status(tasker.CodeOf(err))), nil
}

// linkForm is the form to create and revoke answer links of a step.
type linkForm struct {
	humanForm
	Links []tasker.AnswerLink
	Made  string // address of the new link
	Until time.Time
	Hours string // as typed
}

func (s *server) newLinkForm(req *request) *linkForm {
	h := s.newHumanForm(req, form{page: "answerlink", title: "Answer link of step", Button: "Create link"})
	p := &linkForm{humanForm: h, Hours: strconv.Itoa(int(tasker.DefaultAnswerLinkLife / time.Hour))}
	if req.Method == http.MethodPost {
		p.Hours = req.trimmedField("hours")
	}
	if p.Refused == "" && p.Assignee == "" {
		p.Refused = "The step has no assignee: assign it first."
	}
	p.Links = load(req, s.Engine.AnswerLinks, h.StepRef)
	c := p.newStepCall(endpoint.CreateAnswerLink, "answer-link")
	c.member("expires_in_seconds", int64(tasker.DefaultAnswerLinkLife/time.Second))
	c.setActor("--by", "by")
	p.Command = c.format()
	return p
}

func (p *linkForm) do(req *request) (*view, error) {
	if text := req.PostFormValue("revoke"); text != "" {
		link, err := uuid.Parse(text)
		if err != nil {
			return nil, tasker.Errorf(tasker.Invalid, "invalid revoke: must be the UUID of a link")
		}
		l, err := p.Engine.RevokeAnswerLink(req.Context(), p.StepRef, link, p.Actor)
		return &view{next: stepPath(p.StepRef) + "/links", note: "The link for " + l.Assignee + " was revoked."}, err
	}
	hours, err := strconv.Atoi(p.Hours)
	if most := int(tasker.MaxAnswerLinkLife / time.Hour); err != nil || hours < 1 || hours > most {
		return nil, tasker.Errorf(tasker.Invalid, "invalid hours: must be a number from 1 to %d", most)
	}
	made, err := p.Engine.CreateAnswerLink(req.Context(), p.StepRef, tasker.AnswerLinkRequest{Life: time.Duration(hours) * time.Hour, Actor: p.Actor})
	if err != nil {
		return nil, err
	}
	base := req.requestOrigin()
	if p.PublicURL != "" {
		base = strings.TrimSuffix(p.PublicURL, "/")
	}
	p.Made, p.Until = base+made.Path(), made.ExpiresAt
	return p.view(p, http.StatusCreated), nil // shown once, because only its hash is stored
}
