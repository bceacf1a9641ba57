package web

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/suggest"
)

// Cookies are HttpOnly. SameSite=Lax keeps them out of cross-site forms but sends them with links.
const (
	sessionCookie = "tasker_session"
	tokenCookie   = "tasker_form"
	actorCookie   = "tasker_actor"
	noteCookie    = "tasker_note"

	tokenField  = "token"
	tokenLength = 22
	namePath    = "/name"

	keepName = 180 * 24 * time.Hour
	maxName  = 255 // limit of an actor
)

// request is an HTTP request from a browser, with the state from its cookies.
type request struct {
	*http.Request
	server *server
	failed *error // first error of a part of the page
	w      http.ResponseWriter
	read   map[string]bool // query parameters that were read
	token  string          // token that forms send back
	actor  string          // recorded as the actor: the subject, or the name that the operator entered
	now    time.Time

	caller    *access.Identity                  // nil without a session
	whenEnded func(f func()) (stop func() bool) // calls f at the end of the session
	leave     func()                            // releases the admission slot
	admitted  bool                              // has the permission and an admission slot
}

// callerSubject returns the signed-in caller, or "" if there is none.
func (req *request) callerSubject() string {
	if req.caller == nil {
		return ""
	}
	return req.caller.Subject
}

func (req *request) readCookie(name string) string {
	name, _ = req.cookieKey(name)
	c, err := req.Cookie(name)
	if err != nil {
		return ""
	}
	return c.Value
}

// setCookie sets a cookie. A negative age deletes it.
func (req *request) setCookie(name, value string, age time.Duration) {
	name, below := req.cookieKey(name)
	http.SetCookie(req.w, &http.Cookie{
		Name: name, Value: value, Path: below, MaxAge: int(age.Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode,
		Secure: req.isSecure(),
	})
}

// cookieKey returns the name and the path of a cookie. Over HTTPS, the prefix __Host- prevents
// other hosts and plain HTTP responses from setting the cookie.
func (req *request) cookieKey(name string) (key, below string) {
	if req.isSecure() {
		return "__Host-" + name, "/"
	}
	return name, Root
}

func (req *request) isSecure() bool {
	return req.TLS != nil || req.Header.Get("X-Forwarded-Proto") == "https"
}

// requestOrigin returns the origin of this server as the browser knows it.
func (req *request) requestOrigin() string {
	u := url.URL{Scheme: "http", Host: req.Host}
	if req.isSecure() {
		u.Scheme = "https"
	}
	return u.String()
}

// beginSession reads the cookies and sets a form token if there is none.
func (req *request) beginSession() {
	if req.token = req.readCookie(tokenCookie); len(req.token) != tokenLength {
		req.newToken()
	}
	if name, err := base64.RawURLEncoding.DecodeString(req.readCookie(actorCookie)); err == nil && len(name) > 0 && checkName(string(name)) == nil {
		req.actor = string(name)
	}
}

func (req *request) newToken() {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	req.token = base64.RawURLEncoding.EncodeToString(b[:])
	req.setCookie(tokenCookie, req.token, keepName)
}

// hasToken reports whether the form contains the token of the cookie, which other sites cannot
// read.
func (req *request) hasToken() bool {
	token := req.readCookie(tokenCookie)
	return token != "" && subtle.ConstantTimeCompare([]byte(token), []byte(req.PostFormValue(tokenField))) == 1
}

// isDisconnected reports whether the browser has disconnected.
func (req *request) isDisconnected() bool {
	return errors.Is(context.Cause(req.Context()), context.Canceled)
}

// noteBreak separates a note from its warning in the cookie.
const noteBreak = "\x1e"

// setNote stores a note and an optional warning for the next page.
func (req *request) setNote(text, warning string) {
	short := func(text string) string {
		const most = 1000 // cookies are limited to 4 KB
		text = strings.ReplaceAll(text, noteBreak, "")
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") + "…"
		}
		return text
	}
	req.setCookie(noteCookie, base64.RawURLEncoding.EncodeToString([]byte(short(text)+noteBreak+short(warning))), time.Minute)
}

// takeNote returns the stored note and warning and deletes them. For a refresh, it returns nothing
// and keeps them.
func (req *request) takeNote() (text, warning string) {
	stored := req.readCookie(noteCookie)
	if stored == "" || req.isRefresh() {
		return "", ""
	}
	req.setCookie(noteCookie, "", -time.Second)
	doc, err := base64.RawURLEncoding.DecodeString(stored)
	if err != nil || !utf8.Valid(doc) {
		return "", ""
	}
	text, warning, _ = strings.Cut(string(doc), noteBreak)
	return text, warning
}

// checkName returns an Invalid error if name cannot be the name of an operator. The empty name is
// valid.
func checkName(name string) error {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return tasker.Errorf(tasker.Invalid, "invalid name: must be one line of at most %d bytes", maxName)
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

// setName stores the name of an operator who is not signed in.
func (s *server) setName(req *request) (*view, error) {
	if req.callerSubject() == "" {
		name := req.trimmedField("name")
		if err := checkName(name); err != nil {
			return nil, err
		}
		req.keepActor(name)
	}
	return &view{next: req.returnPath()}, nil
}

// maxBack limits the length of a return address in bytes, because it is stored during a sign-in.
const maxBack = 2000

// returnPath returns the page of this server to which the form returns, or [Root] if the submitted
// address is invalid.
func (req *request) returnPath() string {
	to := req.FormValue("back")
	u, err := url.Parse(to)
	if err != nil || len(to) > maxBack || u.Scheme+u.Host+u.Opaque != "" || strings.ContainsAny(to, "\\\r\n") {
		return Root + "/"
	}
	clean := path.Clean(u.Path) // browsers resolve ..
	if clean != strings.TrimSuffix(u.Path, "/") || clean != Root && !strings.HasPrefix(clean, Root+"/") || clean == Root+signInPath || strings.HasPrefix(clean, Root+signInPath+"/") {
		return Root + "/"
	}
	return to
}

// currentPath returns the address of this page, or of the form if the request set a name.
func (req *request) currentPath() string {
	if req.Method == http.MethodPost && req.URL.Path == Root+namePath {
		return req.returnPath()
	}
	return req.URL.RequestURI()
}

// rawField returns the text of a form field with \n as the line separator.
func (req *request) rawField(name string) string {
	return strings.ReplaceAll(req.PostFormValue(name), "\r\n", "\n")
}

// trimmedField returns the text of a form field without leading and trailing space.
func (req *request) trimmedField(name string) string { return strings.TrimSpace(req.rawField(name)) }

// trimmedValue is like trimmedField but falls back to the query parameter.
func (req *request) trimmedValue(name string) string { return strings.TrimSpace(req.FormValue(name)) }

// isChecked reports whether a checkbox of the form is set.
func (req *request) isChecked(name string) bool { return req.PostFormValue(name) != "" }

// fail records the first error of a part of the page. The error replaces the page.
func (req *request) fail(err error) {
	if *req.failed == nil {
		*req.failed = err
	}
}

// err returns the first recorded error.
func (req *request) err() error { return *req.failed }

// load reads a part of the page. It returns the zero value if this or an earlier part failed.
func load[A, T any](req *request, read func(context.Context, A) (T, error), arg A) (v T) {
	if req.err() == nil {
		v, *req.failed = read(req.Context(), arg)
	}
	return v
}

// loadAll is like load for a function without argument.
func loadAll[T any](req *request, read func(context.Context) (T, error)) T {
	return load(req, func(ctx context.Context, _ any) (T, error) { return read(ctx) }, nil)
}

// loadPage is like load for a page of a list. It also reports whether there are more elements.
func loadPage[F, T any](
	req *request, read func(context.Context, F) ([]T, bool, error), filter F,
) (list []T, more bool) {
	list = load(req, func(ctx context.Context, filter F) (list []T, err error) {
		list, more, err = read(ctx, filter)
		return list, err
	}, filter)
	return list, more
}

// loadByID is like load for the object whose id is the path parameter name.
func loadByID[T any](req *request, name string, read func(context.Context, tasker.ID) (T, error)) T {
	return load(req, read, req.pathID(name))
}

// pathID returns the path parameter name, which is an id.
func (req *request) pathID(name string) tasker.ID {
	id, err := req.parseID(name)
	req.fail(err)
	return id
}

// parseID parses a path parameter that is an id. It returns NotFound if the id is malformed.
func (req *request) parseID(name string) (tasker.ID, error) {
	id, err := uuid.Parse(req.PathValue(name))
	if err != nil {
		return id, tasker.Errorf(tasker.NotFound, "invalid id %q: must be a UUID", truncate(req.PathValue(name), 40))
	}
	return id, nil
}

// query reads the query parameters of a page. An invalid parameter fails the request.
type query struct {
	values url.Values
	req    *request
}

func (req *request) query() *query { return &query{req.URL.Query(), req} }

// Get returns the first value of a parameter.
func (q *query) Get(name string) string {
	q.req.read[name] = true
	return q.values.Get(name)
}

// has reports whether a parameter is present.
func (q *query) has(name string) bool {
	q.req.read[name] = true
	return q.values.Has(name)
}

// all returns all values of a parameter.
func (q *query) all(name string) []string {
	q.req.read[name] = true
	return q.values[name]
}

// hasAny reports whether one of the parameters has a value.
func (q *query) hasAny(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(q.Get(name)) != "" })
}

// FormValue returns a form field, or the query parameter if the form has none.
func (req *request) FormValue(name string) string {
	req.read[name] = true
	return req.Request.FormValue(name)
}

// checkQuery rejects parameters that the handler did not read. Otherwise a misspelled filter would
// select everything.
func (req *request) checkQuery() error {
	given, err := url.ParseQuery(req.URL.RawQuery)
	if err != nil {
		return tasker.Errorf(tasker.Invalid, "invalid query: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if req.read[name] {
			continue
		}
		known, there := slices.Sorted(maps.Keys(req.read)), "this page has no parameters"
		if len(known) > 0 {
			there = "this page has " + strings.Join(known, ", ")
		}
		return tasker.Errorf(tasker.Invalid, "unknown parameter %q: %s%s", truncateExcerpt(name), there,
			suggest.Ending(name, known))
	}
	return nil
}

// truncateExcerpt shortens an invalid value for an error message.
func truncateExcerpt(text string) string { return truncate(strings.ToValidUTF8(text, "�"), 40) }

// addFault records an error that the value of a parameter is invalid and what it must be.
func (q *query) addFault(name, must string) {
	q.req.fail(tasker.Errorf(tasker.Invalid, "invalid %s %q: must be %s", name, truncateExcerpt(q.Get(name)), must))
}

func (q *query) readNumber(name string, fallback, least, most int) int {
	text := q.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		q.addFault(name, "a number from "+strconv.Itoa(least)+" to "+strconv.Itoa(most))
		return fallback
	}
	return n
}

// readChoice reads an optional parameter whose value must be one of values.
func readChoice[T ~string](q *query, name string, values []T) T {
	v := T(q.Get(name))
	if v != "" && !slices.Contains(values, v) {
		q.addFault(name, "one of "+strings.Join(toStrings(values), ", "))
		return ""
	}
	return v
}

func toStrings[T ~string](list []T) (out []string) {
	for _, v := range list {
		out = append(out, string(v))
	}
	return out
}

// readText reads an optional text of at most most bytes that the database can compare.
func (q *query) readText(name string, most int) string {
	text := strings.TrimSpace(q.Get(name))
	if len(text) > most || checkStorable(text) != nil {
		q.addFault(name, "valid UTF-8 without NUL, up to "+strconv.Itoa(most)+" bytes")
		return ""
	}
	return text
}

// readTexts reads up to most values of a parameter and skips empty ones.
func (q *query) readTexts(name string, most int) (list []string) {
	for _, text := range q.all(name) {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		if len(text) > maxText || checkStorable(text) != nil || len(list) == most {
			q.addFault(name, fmt.Sprintf("valid UTF-8 without NUL, up to %d bytes, and at most %d values", maxText, most))
			return nil
		}
		list = append(list, text)
	}
	return list
}

// readParameter parses an optional parameter. It returns nil if the parameter is absent.
func readParameter[T any](q *query, name, must string, parse func(string) (T, error)) *T {
	text := q.Get(name)
	if text == "" {
		return nil
	}
	v, err := parse(text)
	if err != nil {
		q.addFault(name, must)
	}
	return &v
}

func (q *query) readID(name string) *tasker.ID { return readParameter(q, name, "a UUID", uuid.Parse) }

func (q *query) readFlag(name string) *bool {
	return readParameter(q, name, "true or false", strconv.ParseBool)
}

// isOn reads an optional flag.
func (q *query) isOn(name string) bool {
	v := q.readFlag(name)
	return v != nil && *v
}

func (q *query) readDuration(name string) time.Duration {
	d := readParameter(q, name, "a duration such as 15m or 4h", time.ParseDuration)
	if d == nil {
		return 0
	}
	if *d < 0 {
		q.addFault(name, "a duration such as 15m or 4h")
	}
	return *d
}

// readTime reads an optional time.
func (q *query) readTime(name string) time.Time {
	at, err := parseTime(q.Get(name))
	if err != nil {
		q.addFault(name, "a time such as 2026-01-31T12:00:00Z"+suggest.EscapedPlus(q.Get(name)))
	}
	return at
}

// parseTime parses a time. It returns the zero time for an empty text.
func parseTime(text string) (at time.Time, err error) {
	if text = strings.TrimSpace(text); text == "" {
		return at, nil
	}
	if at, err = time.Parse(time.RFC3339, text); err != nil {
		return at, tasker.Errorf(tasker.Invalid, "invalid time %q: must be such as 2026-01-31T12:00:00Z",
			truncateExcerpt(text))
	}
	return at, nil
}

func parseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, tasker.Errorf(tasker.Invalid, "invalid time %q: must be a duration such as 30m or 8h",
			truncateExcerpt(text))
	}
	return d, nil
}

// Limits of lists.
const (
	listRows    = 50
	pageRows    = 100
	maxRows     = 1000
	maxOffset   = 1_000_000
	maxText     = 500     // bytes of a search text
	maxPosition = 1 << 53 // larger than any position or id in the database
)

func (q *query) readOffset() int { return q.readNumber("offset", 0, 0, maxOffset) }

// readBefore reads the position before which a list continues.
func (q *query) readBefore() int64 { return int64(q.readNumber("before", 0, 1, maxPosition)) }

// pager links the pages of a list.
type pager struct {
	Before, After string // empty at the ends
	Here          string // such as 101–200
	Label         string // distinguishes two lists of a page
}

// buildLink returns the address of this page with changed parameters, given as name and value
// pairs. An empty value removes a parameter.
func (req *request) buildLink(pairs ...string) string {
	q := req.URL.Query()
	for i := 0; i < len(pairs); i += 2 {
		if q.Set(pairs[i], pairs[i+1]); pairs[i+1] == "" {
			q.Del(pairs[i])
		}
	}
	u := url.URL{Path: req.URL.Path, RawQuery: q.Encode()}
	return u.String()
}

// newPager returns the pager of a list that is paged by the parameter offset. The page shows shown
// rows.
func (req *request) newPager(offset, limit, shown int, more bool) pager {
	return req.newNamedPager("offset", offset, limit, shown, more)
}

// newNamedPager is like pager for another parameter than offset.
func (req *request) newNamedPager(name string, offset, limit, shown int, more bool) pager {
	var p pager
	if offset > limit {
		p.Before = req.buildLink(name, strconv.Itoa(offset-limit), "step", "")
	} else if offset > 0 {
		p.Before = req.buildLink(name, "", "step", "")
	}
	if more {
		p.After = req.buildLink(name, strconv.Itoa(offset+limit), "step", "")
	}
	if shown > 0 {
		p.Here = strconv.Itoa(offset+1) + "–" + strconv.Itoa(offset+shown)
	}
	return p
}

// listPage is the data of a list.
type listPage[T any] struct {
	List  []T
	Pager pager
}

// newListPage returns a page of a list. If there are more elements, the next page has the cursor of
// the last one as the parameter name.
func newListPage[T any](req *request, list []T, more bool, name string, cursor func(T) any) listPage[T] {
	p := listPage[T]{List: list}
	if more {
		p.Pager.After = req.buildLink(name, fmt.Sprint(cursor(list[len(list)-1])))
	}
	return p
}

// selectPage returns the rows of this page and its pager.
func selectPage[T any](req *request, list []T, name string, offset, size int) ([]T, pager) {
	from := min(offset, len(list))
	to := min(from+size, len(list))
	return list[from:to], req.newNamedPager(name, from, size, to-from, to < len(list))
}

// readForm parses the form of a POST request once.
func (req *request) readForm(rt *route) error {
	if rt.method != http.MethodPost || req.PostForm != nil {
		return nil
	}
	most := int64(maxForm)
	if rt.rule.Public {
		most = maxSignIn
	}
	most = cmp.Or(rt.most, most)
	req.Body = http.MaxBytesReader(req.w, req.Body, most)
	if err := req.ParseForm(); err != nil {
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return tasker.Errorf(tasker.TooLarge, "the form is larger than %d KiB: go back and send your input with tasker-ctl or the API", most>>10)
		}
		return tasker.Errorf(tasker.Invalid, "invalid form: %v", err)
	}
	return nil
}

// cutPage returns the rows of a page and its pager. list was read with a limit of size+1.
func cutPage[T any](req *request, list []T, offset, size int) ([]T, pager) {
	rows := list[:min(len(list), size)]
	return rows, req.newPager(offset, size, len(rows), len(list) > size)
}
