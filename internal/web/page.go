package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"tasker.example/tasker"
	"tasker.example/tasker/internal/access"
	"tasker.example/tasker/internal/cases"
	"tasker.example/tasker/internal/payload"
)

//go:embed templates/*.html templates/*.txt
var templateFiles embed.FS

// pages maps page names to templates. Each includes the frame and the shared templates, whose file
// names begin with an underscore.
type pages map[string]*template.Template

var parsedPages = sync.OnceValue(parsePages)

func parsePages() pages {
	shared := template.New("").Funcs(functions)
	template.Must(shared.ParseFS(templateFiles, "templates/_*.html"))
	names, err := fs.Glob(templateFiles, "templates/[a-z]*.html")
	if err != nil {
		panic(err)
	}
	out := pages{}
	for _, name := range names {
		t := template.Must(shared.Clone())
		out[strings.TrimSuffix(path.Base(name), ".html")] = template.Must(t.ParseFS(templateFiles, name))
	}
	return out
}

// pageFrame is the data of the layout around every page.
type pageFrame struct {
	Title    string
	Nav      []link
	Note     string // result of the last action
	Warning  string // warning of the last action
	Actor    string
	Subject  string // signed-in caller
	SignsIn  bool   // authentication is enabled
	Token    string
	Self     string // path and query of this page
	Live     bool
	Feed     string // event stream; empty makes the page poll
	ReadOnly bool
	Alone    bool // no navigation and no caller
	Version  string
	Now      time.Time
	Asset    func(name string) string
	Held     []tasker.Hold // open
	Body     any

	server *server
	req    *request
}

// Allowed reports whether the page offers an action that requires a permission in all of these
// namespaces.
func (f pageFrame) Allowed(needs access.Permission, namespaces ...string) bool {
	return f.server.canShowAction(f.req, needs, namespaces...)
}

// AllowedAll is like [pageFrame.Allowed] but accepts a slice.
func (f pageFrame) AllowedAll(needs access.Permission, namespaces []string) bool {
	return f.server.canShowAction(f.req, needs, namespaces...)
}

// Offers reports whether the page offers an action that requires a permission in any namespace.
func (f pageFrame) Offers(needs access.Permission) bool { return !f.ReadOnly && f.req.canSee(needs) }

// Delivers reports whether this server delivers events to a sink.
func (f pageFrame) Delivers(sink string) bool { return slices.Contains(f.server.Sinks, sink) }

// Parameter returns the value of a query parameter of this page.
func (f pageFrame) Parameter(name string) string { return f.req.URL.Query().Get(name) }

// Sees reports whether the caller has a permission in any namespace.
func (f pageFrame) Sees(needs access.Permission) bool { return f.req.canSee(needs) }

// Hides reports whether payloads of a namespace are hidden from the caller.
func (f pageFrame) Hides(namespace string) bool { return !f.req.canReadPayloads(namespace) }

// link leads to a page, to a part of a list or to an action.
type link struct {
	Name, Path, Key, Does string
	Here                  bool // leads to this page
}

const navCases = "Cases"

// buildNavigation returns the pages that the caller may read.
func (s *server) buildNavigation(req *request, here string) []link {
	list := []link{
		{Name: navCases, Path: Root + "/", Key: "g q"},
		{Name: "Tasks", Path: Root + "/tasks", Key: "g t"},
		{Name: navOperations, Path: operationsPath, Key: "g o"},
		{Name: navHolds, Path: holdsPath, Key: "g h"},
		{Name: navInbox, Path: inboxPath, Key: "g b"},
		{Name: navSchedules, Path: schedulesPath, Key: "g c"},
		{Name: navLimits, Path: limitsPath, Key: "g m"},
		{Name: "Staleness", Path: Root + "/staleness", Key: "g s"},
		{Name: "Dashboard", Path: Root + "/dashboard", Key: "g d"},
		{Name: "Workers", Path: Root + "/workers", Key: "g w"},
		{Name: navTemplates, Path: templatesPath, Key: "g l"},
		{Name: "Emissions", Path: Root + "/emissions", Key: "g e"},
	}
	for i := range list {
		list[i].Here = list[i].Name == here
	}
	return slices.DeleteFunc(list, func(l link) bool {
		of := strings.TrimPrefix(l.Path, Root)
		if of == "/" {
			of = "/{$}"
		}
		return !req.canSee(s.needs[of])
	})
}

// writeView writes a page. It renders the page completely first, so that a failure sends no half
// page.
func (s *server) writeView(req *request, v *view) {
	if v.alone {
		req.caller = nil // every holder of the link gets the same page
	}
	f := pageFrame{
		Title: v.title, Nav: s.buildNavigation(req, v.nav), Actor: req.actor, Subject: req.callerSubject(),
		SignsIn: s.Auth != nil,
		Token:   req.token, Self: req.currentPath(), Live: v.live, ReadOnly: s.ReadOnly, Alone: v.alone, Version: s.Version,
		Now: req.now, Asset: s.assetPath, Held: s.listOpenHolds(req), Body: v.body, server: s, req: req,
	}
	if s.Feed != nil && v.live && req.canSee(access.ReadEvents) {
		f.Feed = Root + streamPath
	}
	if !v.alone {
		f.Note, f.Warning = req.takeNote()
	}
	var page bytes.Buffer
	if err := s.pages[v.page].ExecuteTemplate(&page, "frame", f); err != nil {
		s.Log.ErrorContext(req.Context(), "page template failed", "page", v.page, "err", err)
		http.Error(req.w, "The server failed to render this page. See its log.", http.StatusInternalServerError)
		return
	}
	req.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	writeBody(req.w, req.Request, cmp.Or(v.status, http.StatusOK), []byte(markBidi(page.String())))
}

// formValues matches the values of form fields in HTML, which browsers send back unchanged.
var formValues = regexp.MustCompile(`(?s)<textarea\b.*?</textarea>|\svalue="[^"]*"`)

// markBidi applies [payload.MarkBidi] to a page, except to the values of its form fields.
func markBidi(page string) string {
	marked := payload.MarkBidi(page)
	if marked == page {
		return page
	}
	var b strings.Builder
	from := 0
	for _, at := range formValues.FindAllStringIndex(page, -1) {
		b.WriteString(payload.MarkBidi(page[from:at[0]]))
		b.WriteString(page[at[0]:at[1]])
		from = at[1]
	}
	b.WriteString(payload.MarkBidi(page[from:]))
	return b.String()
}

//go:embed static/*.css static/*.js static/*.svg
var staticFiles embed.FS

var hashedAssets = sync.OnceValue(hashAssets)

// hashAssets returns the hashes of the static files. Their URLs contain them, so browsers cache the
// files forever.
func hashAssets() map[string]string {
	hashes := map[string]string{}
	files, err := staticFiles.ReadDir("static")
	for _, f := range files {
		text, readErr := staticFiles.ReadFile("static/" + f.Name())
		err = cmp.Or(err, readErr)
		sum := sha256.Sum256(text)
		hashes[f.Name()] = hex.EncodeToString(sum[:6])
	}
	if err != nil {
		panic(err) // the files are embedded
	}
	return hashes
}

func (s *server) assetPath(name string) string {
	return Root + "/static/" + name + "?v=" + s.assets[name]
}

func (s *server) serveStatic(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, err := staticFiles.ReadFile("static/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	if r.URL.Query().Get("v") == s.assets[name] {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	writeBody(w, r, http.StatusOK, text)
}

// writeBody writes a response, compressed if the browser accepts that.
func writeBody(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Vary", "Accept-Encoding")
	if !acceptsGzip(r) {
		w.WriteHeader(status)
		_, _ = w.Write(body) // the browser may have disconnected
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // a valid level
	_, _ = z.Write(body)
	_ = z.Close()
}

func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
		if name == "gzip" && strings.ReplaceAll(quality, " ", "") != "q=0" {
			return true
		}
	}
	return false
}

// functions contains the template functions. Only [formatMoment] returns HTML, which it builds from
// a time.
var functions = template.FuncMap{
	"lasted": formatLength, "moment": formatMoment, "minutes": formatMinutes,
	"seconds":   func(s float64) string { return formatMinutes(s / 60) },
	"minutesOf": func(m *float64) string { return formatMinutes(*m) },
	"document":  func(name string, doc json.RawMessage) document { return newDocument(name, doc, maxShown, "") },
	"opened":    document.asOpen,
	"words":     formatWords, "short": formatShortID, "stateKind": stateKind, "severityKind": severityKind,
	"cause": tasker.CauseOf,
	"count": formatCount, "endedOf": formatEnded, "text": formatText, "shown": cleanText, "clip": truncate,
	"dict": newDict, "span": formatSpan, "entry": entryOf, "sentence": toSentence, "indent": strings.Repeat,
	"add": func(a, b int) int { return a + b }, "minus": func(a, b int) int { return a - b },
	"ago":   func(at *time.Time) string { return formatAgo(*at) },
	"inner": func(doc json.RawMessage) string { return strings.Trim(compactJSON(doc), "{}") }, "late": formatDelay,
	"list": formatList, "splitFields": cases.SplitFields,
	"join": strings.Join, "heldSteps": formatHeld, "queue": queuePath, "version": templatePath,
	"taskProgress": newTaskProgress, "caseProgress": newCaseProgress, "operationProgress": newOperationProgress,
	"action": describeAction, "rate": formatRate,
	"limitTitle": limitTitle, "limitPage": limitPage, "capped": formatCapped, "failing": describeFailing,
	"gauge":   newBar,
	"reasons": tasker.Reasons, "taskStates": tasker.TaskStates, "operationStates": tasker.OperationStates,
	"emissionStates": tasker.EmissionStates, "topics": tasker.Topics,
}

// entryOf returns the id of the investigation of an event, or "" for an event of a task.
func entryOf(e tasker.Event) string {
	if e.EntryUUID == (tasker.ID{}) {
		return ""
	}
	return e.EntryUUID.String()
}

// formatMoment formats a time, or a pointer to one, as its age, with the UTC time as tooltip. The
// script updates both.
func formatMoment(v any) template.HTML {
	at, ok := v.(time.Time)
	if optional, _ := v.(*time.Time); optional != nil {
		at, ok = *optional, true
	}
	if !ok || at.IsZero() {
		return "–"
	}
	utc := at.UTC().Format(time.RFC3339)
	return template.HTML(`<time datetime="` + utc + `" title="` + at.UTC().Format("2006-01-02 15:04:05 UTC") + `">` +
		template.HTMLEscapeString(formatAgo(at)) + `</time>`)
}

// formatAgo formats the distance of a time from now.
func formatAgo(at time.Time) string {
	d := time.Since(at)
	if d < 0 {
		return "in " + formatLength(-d)
	}
	return formatLength(d) + " ago"
}

func formatMinutes(m float64) string { return formatLength(time.Duration(m * float64(time.Minute))) }

// formatLength formats a duration in its two largest units.
func formatLength(d time.Duration) string {
	switch d = d.Round(time.Second); {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	default:
		return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
	}
}

// maxShown limits the bytes of a document on a page.
const maxShown = 256 << 10

// document is JSON of which a page may show only the beginning.
type document struct {
	ID    string // of the element; optional
	Name  string
	Text  string // indented
	Size  string
	Whole string // API path of the complete document
	Cut   bool
	Open  bool // not folded
}

// newDocument returns a document that shows up to most bytes of doc. whole is the API path of the
// complete document.
func newDocument(name string, doc json.RawMessage, most int, whole string) document {
	d := document{Name: name, Size: formatCount(len(doc), "byte"), Whole: whole}
	if len(doc) <= most {
		if d.Text = formatJSON(doc); len(d.Text) <= 2*most {
			return d
		}
		doc = json.RawMessage(d.Text) // mostly indentation
	}
	d.Text, d.Cut = strings.ToValidUTF8(string(doc[:most]), ""), true
	return d
}

func (d document) withID(id string) document {
	d.ID = id
	return d
}

func (d document) asOpen() document {
	d.Open = true
	return d
}

// formatJSON indents JSON. It returns other text unchanged and keeps the spelling of numbers.
func formatJSON(doc json.RawMessage) string {
	if len(doc) == 0 {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return string(doc)
	}
	return b.String()
}

// formatWords formats a state or another identifier of the API for people.
func formatWords(name any) string {
	switch s := fmt.Sprint(name); s {
	case "resting":
		return "snoozed"
	case "proving":
		return "verifying"
	case "set_aside":
		return "undeliverable"
	default:
		return strings.ReplaceAll(s, "_", " ")
	}
}

// formatShortID returns the end of a UUID, because UUIDs that were created at about the same time
// begin alike.
func formatShortID(id any) string {
	s := formatText(id)
	if len(s) == 36 {
		return s[24:]
	}
	return s
}

// formatText formats a value. It returns "" for nil.
func formatText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *string:
		if v == nil {
			return ""
		}
		return *v
	case *tasker.ID:
		if v == nil {
			return ""
		}
		return v.String()
	case json.RawMessage:
		return string(v)
	default:
		return fmt.Sprint(v)
	}
}

// formatCount formats a number with thousands separators and its noun.
func formatCount(n any, noun string) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if noun == "" {
		return digits
	}
	if digits == "1" {
		return digits + " " + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok {
		return digits + " " + stem + "ies"
	}
	if strings.HasSuffix(noun, "s") {
		return digits + " " + noun + "es"
	}
	return digits + " " + noun + "s"
}

// stateKind returns the CSS class of a state.
func stateKind(state any) string {
	switch fmt.Sprint(state) {
	case "complete", "resolved_manually", "manually_resolved", "published", "active", "up", "healthy", "recovered", "resolved", "verified", "done":
		return "good"
	case "in_progress", "enqueued", "steps_in_process", "initializing", "enqueuing_steps", "evaluating_results", "enqueued_for_orchestration", "proving", "running", "released":
		return "busy"
	case "error", "blocked_by_failures", "permanently_failed", "set_aside", "stale", "gone", "failing", "down",
		"escalating", "regressed", "failed_again":
		return "bad"
	case "cancelled", "off", "aborted", "skipped":
		return "off"
	case "waiting_for_retry", "warning", "draining", "degraded", "new", "waiting", "paused":
		return "warn"
	default:
		return "idle"
	}
}

// severityKind returns the CSS class of a severity.
func severityKind(s tasker.Severity) string {
	switch s {
	case tasker.Critical, tasker.High:
		return "bad"
	case tasker.Medium:
		return "warn"
	default:
		return "idle"
	}
}

// cleanText returns text, or "" if it is hidden from the caller.
func cleanText(text string) string {
	if text == access.Hidden {
		return ""
	}
	return text
}

// newDict returns a map from pairs of name and value, to pass several arguments to a shared
// template.
func newDict(pairs ...any) (map[string]any, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("dict: %d arguments are not pairs", len(pairs))
	}
	m := make(map[string]any, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("dict: %v is not a name", pairs[i])
		}
		m[name] = pairs[i+1]
	}
	return m, nil
}
