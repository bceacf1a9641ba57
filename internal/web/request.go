package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/suggest"
)

// Cookies. No script reads them. SameSite=Lax keeps them out of forms of other sites,
// and keeps the operator's name when they follow a link from elsewhere.
const (
	sessionCookie = "tasker_session"
	tokenCookie   = "tasker_form"
	actorCookie   = "tasker_actor"
	noteCookie    = "tasker_note"

	tokenField  = "token"
	tokenLength = 22
	namePath    = "/name"

	keepName = 180 * 24 * time.Hour
	maxName  = 255 // as long as an actor may be
)

// A request is one request of a browser, with what its cookies say.
type request struct {
	*http.Request
	w     http.ResponseWriter
	read  map[string]bool // the parameters of the query that were read
	token string          // what a form must send back
	actor string          // who is recorded as having acted: the subject, or else the name that the operator gave
	now   time.Time

	caller    *access.Identity                  // nil without a session
	whenEnded func(f func()) (stop func() bool) // has f called when the session has ended
	leave     func()                            // ends what counts for the limit of requests
	admitted  bool                              // it counts for the limit of requests, and may do what it asks for
}

// subject returns who has signed in; empty where nobody is asked.
func (req *request) subject() string {
	if req.caller == nil {
		return ""
	}
	return req.caller.Subject
}

func (req *request) cookie(name string) string {
	name, _ = req.cookieKey(name)
	c, err := req.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie keeps a value at the browser; a negative age removes it.
func (req *request) setCookie(name, value string, age time.Duration) {
	name, below := req.cookieKey(name)
	http.SetCookie(req.w, &http.Cookie{
		Name: name, Value: value, Path: below, MaxAge: int(age.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: req.secure(),
	})
}

// cookieKey returns the name of a cookie at the browser, and the path below which it is sent. With HTTPS the prefix of
// the name, which demands that path, keeps other hosts of the domain, and whoever is between
// without HTTPS, from setting one of this name.
func (req *request) cookieKey(name string) (key, below string) {
	if req.secure() {
		return "__Host-" + name, "/"
	}
	return name, Root
}

// secure reports whether the browser uses HTTPS.
func (req *request) secure() bool {
	return req.TLS != nil || req.Header.Get("X-Forwarded-Proto") == "https"
}

// origin returns the address of this server as the browser knows it.
func (req *request) origin() string {
	u := url.URL{Scheme: "http", Host: req.Host}
	if req.secure() {
		u.Scheme = "https"
	}
	return u.String()
}

// begin reads the cookies, and gives the browser a token if it has none.
func (req *request) begin() {
	if req.token = req.cookie(tokenCookie); len(req.token) != tokenLength {
		req.newToken()
	}
	if name, err := base64.RawURLEncoding.DecodeString(req.cookie(actorCookie)); err == nil && len(name) > 0 && nameFault(string(name)) == nil {
		req.actor = string(name)
	}
}

// newToken gives the browser a token.
func (req *request) newToken() {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	req.token = base64.RawURLEncoding.EncodeToString(b[:])
	req.setCookie(tokenCookie, req.token, keepName)
}

// hasToken reports whether a form was made for this browser: another site can make
// the browser send a form, but cannot read the cookie.
func (req *request) hasToken() bool {
	kept := req.cookie(tokenCookie)
	return kept != "" && subtle.ConstantTimeCompare([]byte(kept), []byte(req.PostFormValue(tokenField))) == 1
}

// gone reports whether the browser has closed the connection.
func (req *request) gone() bool { return errors.Is(context.Cause(req.Context()), context.Canceled) }

// noteBreak separates a note from its warning in the cookie.
const noteBreak = "\x1e"

// leaveNote keeps a note for the next page, and a warning, which may be empty.
func (req *request) leaveNote(text, warning string) {
	short := func(text string) string {
		const most = 1000 // a cookie has 4 KB
		text = strings.ReplaceAll(text, noteBreak, "")
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "…"
		}
		return text
	}
	req.setCookie(noteCookie, base64.RawURLEncoding.EncodeToString([]byte(short(text)+noteBreak+short(warning))), time.Minute)
}

// takeNote returns the note and the warning that were left for this page, once. The
// refresh of a live page does not take them from the page that follows the action.
func (req *request) takeNote() (text, warning string) {
	kept := req.cookie(noteCookie)
	if kept == "" || req.refreshes() {
		return "", ""
	}
	req.setCookie(noteCookie, "", -time.Second)
	doc, err := base64.RawURLEncoding.DecodeString(kept)
	if err != nil || !utf8.Valid(doc) {
		return "", ""
	}
	text, warning, _ = strings.Cut(string(doc), noteBreak)
	return text, warning
}

// nameFault says what is wrong with the name of an operator, which may be empty.
func nameFault(name string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return tasker.Errorf(tasker.Invalid, "invalid name: must have up to %d bytes, on one line", maxName)
	}
	return nil
}

func (req *request) keepActor(name string) {
	age := keepName
	if name == "" {
		age = -time.Second
	}
	req.actor = name
	req.setCookie(actorCookie, base64.RawURLEncoding.EncodeToString([]byte(name)), age)
}

// setName keeps the name of the operator at the browser, under which their actions
// are recorded. Who has signed in has a name.
func (s *server) setName(req *request) (*view, error) {
	if req.subject() != "" {
		return &view{next: req.backTo()}, nil
	}
	name := strings.TrimSpace(req.PostFormValue("name"))
	if err := nameFault(name); err != nil {
		return nil, err
	}
	req.keepActor(name)
	return &view{next: req.backTo()}, nil
}

// maxBack bounds an address to come back to, which is stored while somebody signs in.
const maxBack = 2000

// backTo returns the page of this server that a form names to go back to.
func (req *request) backTo() string {
	to := req.FormValue("back")
	u, err := url.Parse(to)
	if err != nil || len(to) > maxBack || u.Scheme+u.Host+u.Opaque != "" || strings.ContainsAny(to, "\\\r\n") {
		return Root + "/"
	}
	clean := path.Clean(u.Path) // a browser follows .. as well
	if clean != strings.TrimSuffix(u.Path, "/") || clean != Root && !strings.HasPrefix(clean, Root+"/") || clean == Root+signInPath || strings.HasPrefix(clean, Root+signInPath+"/") {
		return Root + "/"
	}
	return to
}

// self returns the address of this page, to come back to; of a name that was refused,
// the page on which it was typed.
func (req *request) self() string {
	if req.Method == http.MethodPost && req.URL.Path == Root+namePath {
		return req.backTo()
	}
	return req.URL.RequestURI()
}

// typed returns the text of a field with the line ends of a shell, not of a form.
func (req *request) typed(name string) string {
	return strings.ReplaceAll(req.PostFormValue(name), "\r\n", "\n")
}

// id reads an id of the path.
func (req *request) id(name string) (tasker.ID, error) {
	var id tasker.ID
	if err := id.UnmarshalText([]byte(req.PathValue(name))); err != nil {
		return id, tasker.Errorf(tasker.NotFound, "invalid id %q: must be a UUID", clip(req.PathValue(name), 40))
	}
	return id, nil
}

// A query reads the parameters of a page. It keeps the first fault, so that a handler
// checks once, after it has read all of them.
type query struct {
	values url.Values
	read   map[string]bool
	err    error
}

func (req *request) query() *query { return &query{values: req.URL.Query(), read: req.read} }

// Get returns the first value of a parameter.
func (q *query) Get(name string) string {
	q.read[name] = true
	return q.values.Get(name)
}

// has reports whether a parameter is there, with whatever value.
func (q *query) has(name string) bool {
	q.read[name] = true
	return q.values.Has(name)
}

// all returns the values of a parameter that may be given several times.
func (q *query) all(name string) []string {
	q.read[name] = true
	return q.values[name]
}

// FormValue returns a field of the form, or else a parameter of the query.
func (req *request) FormValue(name string) string {
	req.read[name] = true
	return req.Request.FormValue(name)
}

// checkQuery refuses a query that the handler has not read in full: without a filter that
// was misspelled, a page shows everything, and an action is performed on it.
func (req *request) checkQuery() error {
	given, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "the address cannot be read: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if req.read[name] {
			continue
		}
		known, there := slices.Sorted(maps.Keys(req.read)), "this page has no parameters"
		if len(known) > 0 {
			there = "this page has " + strings.Join(known, ", ")
		}
		return tasker.Errorf(tasker.Invalid, "unknown parameter %q: %s%s", clip(strings.ToValidUTF8(name, "�"), 40), there, suggest.Ending(name, known))
	}
	return nil
}

// refuse records that a value is invalid, and what it must be.
func (q *query) refuse(name, must string) {
	if q.err == nil {
		q.err = tasker.Errorf(tasker.Invalid, "invalid %s %q: must be %s", name, clip(strings.ToValidUTF8(q.Get(name), "�"), 40), must)
	}
}

func (q *query) number(name string, fallback, least, most int) int {
	text := q.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		q.refuse(name, "a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
		return fallback
	}
	return n
}

// choice reads one of a few words; an empty one chooses nothing.
func choice[T ~string](q *query, name string, values []T) T {
	v := T(q.Get(name))
	if v != "" && !slices.Contains(values, v) {
		words := make([]string, len(values))
		for i, v := range values {
			words[i] = string(v)
		}
		q.refuse(name, "one of "+strings.Join(words, ", "))
		return ""
	}
	return v
}

// text reads a text that the database can compare.
func (q *query) text(name string, most int) string {
	text := strings.TrimSpace(q.Get(name))
	if len(text) > most || storable(text) != nil {
		q.refuse(name, "valid UTF-8 without NUL, up to "+strconv.Itoa(most)+" bytes")
		return ""
	}
	return text
}

// texts reads a text that may be given several times, up to most; the empty ones are none.
func (q *query) texts(name string, most int) (list []string) {
	for _, text := range q.all(name) {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if len(text) > maxText || storable(text) != nil || len(list) == most {
			q.refuse(name, "valid UTF-8 without NUL, up to "+strconv.Itoa(maxText)+" bytes, and given "+strconv.Itoa(most)+" times at most")
			return nil
		}
		list = append(list, text)
	}
	return list
}

func (q *query) id(name string) *tasker.ID {
	if q.Get(name) == "" {
		return nil
	}
	var id tasker.ID
	if id.UnmarshalText([]byte(q.Get(name))) != nil {
		q.refuse(name, "a UUID")
	}
	return &id
}

func (q *query) flag(name string) *bool {
	if q.Get(name) == "" {
		return nil
	}
	v, err := strconv.ParseBool(q.Get(name))
	if err != nil {
		q.refuse(name, "true or false")
	}
	return &v
}

// on reads a flag that is either set or not.
func (q *query) on(name string) bool {
	v := q.flag(name)
	return v != nil && *v
}

func (q *query) duration(name string) time.Duration {
	if q.Get(name) == "" {
		return 0
	}
	d, err := time.ParseDuration(q.Get(name))
	if err != nil || d < 0 {
		q.refuse(name, "a duration such as 15m or 4h")
	}
	return d
}

// instant reads a time; zero when there is none.
func (q *query) instant(name string) time.Time {
	at, err := readInstant(q.Get(name))
	if err != nil {
		q.refuse(name, "a time such as 2026-01-31T12:00:00Z"+suggest.EscapedPlus(q.Get(name)))
	}
	return at
}

// readInstant reads a time; zero when there is none.
func readInstant(text string) (at time.Time, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, tasker.Errorf(tasker.Invalid, "invalid time %q: must be such as 2026-01-31T12:00:00Z", clip(strings.ToValidUTF8(text, "�"), 40))
	}
	return at, nil
}

// Bounds of every list.
const (
	pageRows    = 100
	maxRows     = 1000
	maxOffset   = 1_000_000
	maxText     = 500     // of what is searched for
	maxPosition = 1 << 53 // larger than every position and id that the database counts
)

func (q *query) offset() int { return q.number("offset", 0, 0, maxOffset) }

// before reads where a list goes on, which is before an element.
func (q *query) before() int64 { return int64(q.number("before", 0, 1, maxPosition)) }

// A pager leads through a list that is longer than a page.
type pager struct {
	Before, After string // addresses; empty at the ends
	Here          string // such as 101–200
	Label         string // of one of two lists
}

// link returns the address of this page with other values of some parameters: name,
// value, name, value. An empty value removes one.
func (req *request) link(pairs ...string) string {
	q := req.URL.Query()
	for i := 0; i < len(pairs); i += 2 {
		if q.Set(pairs[i], pairs[i+1]); pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	u := url.URL{Path: req.URL.Path, RawQuery: q.Encode()}
	return u.String()
}

// pager returns the pager of a list of which shown rows are on this page, after offset.
func (req *request) pager(offset, limit, shown int, more bool) pager {
	return req.pagerOf("offset", offset, limit, shown, more)
}

// pagerOf is pager for a list whose offset is the parameter name.
func (req *request) pagerOf(name string, offset, limit, shown int, more bool) pager {
	var p pager
	if offset > limit {
		p.Before = req.link(name, strconv.Itoa(offset-limit), "step", "")
	} else if offset > 0 {
		p.Before = req.link(name, "", "step", "")
	}
	if more {
		p.After = req.link(name, strconv.Itoa(offset+limit), "step", "")
	}
	if shown > 0 {
		p.Here = strconv.Itoa(offset+1) + "–" + strconv.Itoa(offset+shown)
	}
	return p
}

// pagerBefore returns the pager of a list that goes on before an element; the way
// back is the browser's.
func (req *request) pagerBefore(last int64) pager {
	return pager{After: req.link("before", strconv.FormatInt(last, 10))}
}

// onPage returns the rows of a list that are on this page, and its pager.
func onPage[T any](req *request, list []T, name string, offset, size int) ([]T, pager) {
	from := min(offset, len(list))
	to := min(from+size, len(list))
	return list[from:to], req.pagerOf(name, from, size, to-from, to < len(list))
}

// readForm reads the form of a request that changes something, once.
func (req *request) readForm(rt *route) error {
	if rt.method != http.MethodPost || req.PostForm != nil {
		return nil
	}
	most := cmp.Or(rt.most, int64(maxForm))
	if rt.rule.Public {
		most = cmp.Or(rt.most, int64(maxSignIn))
	}
	req.Body = http.MaxBytesReader(req.w, req.Body, most)
	if err := req.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return tasker.Errorf(tasker.TooLarge, "what was sent is larger than %d KiB; go back to what you typed, and send it with tasker-ctl or the API", most>>10)
		}
		return tasker.Errorf(tasker.Invalid, "the form cannot be read: %v", err)
	}
	return nil
}
