package web

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
)

// What the browser keeps for us. None of it is read by a script, or sent along with
// forms of others; a link from somewhere finds its reader as he is.
const (
	tokenCookie = "tasker_form"
	actorCookie = "tasker_actor"
	noteCookie  = "tasker_note"

	tokenField = "token"
	namePath   = "/name"

	keepName = 180 * 24 * time.Hour
	maxName  = 255 // as long as an actor may be
)

func (x *exchange) cookie(name string) string {
	c, err := x.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

func (x *exchange) setCookie(name, value string, age time.Duration) {
	http.SetCookie(x.w, &http.Cookie{
		Name: name, Value: value, Path: Root, MaxAge: int(age.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: x.secure(),
	})
}

// secure tells whether the browser came by HTTPS.
func (x *exchange) secure() bool { return x.TLS != nil || x.Header.Get("X-Forwarded-Proto") == "https" }

// begin reads what the browser keeps, and gives it a token if it has none.
func (x *exchange) begin() {
	if x.token = x.cookie(tokenCookie); len(x.token) != tokenLength {
		x.token = newToken()
		x.setCookie(tokenCookie, x.token, keepName)
	}
	if name, err := base64.RawURLEncoding.DecodeString(x.cookie(actorCookie)); err == nil && fitsName(string(name)) {
		x.actor = string(name)
	}
}

const tokenLength = 22

func newToken() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// tokenFits tells whether a form was made for this browser: a page of somebody else
// can have one sent, and cannot know what our cookie says.
func (x *exchange) tokenFits() bool {
	kept := x.cookie(tokenCookie)
	return kept != "" && subtle.ConstantTimeCompare([]byte(kept), []byte(x.PostFormValue(tokenField))) == 1
}

// leaveNote keeps a line for the next page, and a warning, which may be empty.
func (x *exchange) leaveNote(text, warning string) {
	const most = 1000 // a cookie has 4 KB
	kept := noteText(text, most) + noteBreak + noteText(warning, most)
	x.setCookie(noteCookie, base64.RawURLEncoding.EncodeToString([]byte(kept)), time.Minute)
}

// noteBreak stands between the line and the warning.
const noteBreak = "\x1e"

func noteText(text string, most int) string {
	text = strings.ReplaceAll(text, noteBreak, "")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// takeNote returns the line and the warning that were left for this page, once.
func (x *exchange) takeNote() (text, warning string) {
	kept := x.cookie(noteCookie)
	if mode := x.Header.Get("Sec-Fetch-Mode"); kept == "" || mode != "" && mode != "navigate" { // a live page leaves it to who went on
		return "", ""
	}
	x.setCookie(noteCookie, "", -time.Second)
	doc, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil || !utf8.Valid(doc) {
		return "", ""
	}
	text, warning, _ = strings.Cut(string(doc), noteBreak)
	return text, warning
}

func fitsName(name string) bool {
	return name != "" && len(name) <= maxName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' })
}

// setName keeps who is at the browser: what he does is recorded under that name.
func (s *server) setName(x *exchange) (*view, error) {
	name := strings.TrimSpace(x.PostFormValue("name"))
	if name != "" && !fitsName(name) {
		return nil, tasker.Errorf(tasker.Invalid, "a name has up to %d bytes, on one line", maxName)
	}
	age := keepName
	if name == "" {
		age = -time.Second
	}
	x.setCookie(actorCookie, base64.RawURLEncoding.EncodeToString([]byte(name)), age)
	return &view{next: x.backTo()}, nil
}

// actorOf is who acts: the name in the form, which is that of the page's head
// unless somebody has changed it. It is kept for the next time.
func (x *exchange) actorOf() (string, error) {
	name := strings.TrimSpace(x.PostFormValue("actor"))
	if name == "" {
		return "", tasker.Errorf(tasker.Invalid, "say who you are: what you do is recorded under your name")
	}
	if !fitsName(name) {
		return "", tasker.Errorf(tasker.Invalid, "a name has up to %d bytes, on one line", maxName)
	}
	if name != x.actor {
		x.actor = name
		x.setCookie(actorCookie, base64.RawURLEncoding.EncodeToString([]byte(name)), keepName)
	}
	return name, nil
}

// backTo is the page of ours that a form names to go back to.
func (x *exchange) backTo() string {
	to := x.FormValue("back")
	u, err := url.Parse(to)
	if err != nil || u.Scheme+u.Host+u.Opaque != "" || strings.ContainsAny(to, "\\\r\n") {
		return Root + "/"
	}
	clean := path.Clean(u.Path) // a browser follows .. as well
	if clean != strings.TrimSuffix(u.Path, "/") || clean != Root && !strings.HasPrefix(clean, Root+"/") {
		return Root + "/"
	}
	return to
}

func contextOf(r *http.Request, timeout time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), timeout)
}

// gone tells whether the browser has hung up.
func (x *exchange) gone() bool { return errors.Is(context.Cause(x.Context()), context.Canceled) }

func asError(err error) (*tasker.Error, bool) { return errors.AsType[*tasker.Error](err) }

func asMaxBytes(err error) (*http.MaxBytesError, bool) {
	return errors.AsType[*http.MaxBytesError](err)
}

func stack() string { return string(debug.Stack()) }

// self is the path of this page, to come back to; that of a name which was refused
// is where it was typed.
func (x *exchange) self() string {
	if x.Method == http.MethodPost && x.URL.Path == Root+namePath {
		return x.backTo()
	}
	return x.URL.RequestURI()
}
