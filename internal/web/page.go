package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
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
	"tasker.example/tasker/internal/payload"
)

//go:embed templates/*.html
var templateFiles embed.FS

// pages are the templates of the pages by name, each with the frame around it and
// the pieces that several share (files whose name begins with an underscore).
type pages map[string]*template.Template

// parsedPages are those of all servers.
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

// A frame is what is around every page, and the page in it.
type frame struct {
	Title    string
	Nav      []link
	Note     string // what was done just now
	Warning  string // what whoever did it may have overlooked
	Actor    string
	Subject  string // who has signed in
	SignsIn  bool   // callers are asked who they are
	Token    string
	Self     string // the path of this page with its query, to share and to come back to
	Live     bool
	Feed     string // where it learns of changes; empty: it asks
	ReadOnly bool
	Alone    bool // nothing of the server is around the page
	Version  string
	Now      time.Time
	Asset    func(name string) string
	Held     []holdLine // open holds
	Body     any

	server *server
	req    *request
}

// May reports whether the page shows an action that needs a permission in namespaces.
func (f frame) May(needs access.Permission, namespaces ...string) bool {
	return f.server.showsAction(f.req, needs, namespaces...)
}

// MayAll is [frame.May] for a list.
func (f frame) MayAll(needs access.Permission, namespaces []string) bool {
	return f.server.showsAction(f.req, needs, namespaces...)
}

// Sees reports whether the caller may see at all what needs a permission.
func (f frame) Sees(needs access.Permission) bool { return f.req.sees(needs) }

// Hides reports whether payloads of a namespace are hidden from the caller.
func (f frame) Hides(namespace string) bool { return !f.req.readsPayloads(namespace) }

// A link of the navigation.
type link struct {
	Name, Path, Key string
	Here            bool
}

// navCases names the list of cases in the navigation.
const navCases = "Cases"

// navigation returns the links to the pages that the caller may see.
func (s *server) navigation(req *request, here string) []link {
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
		return !req.sees(s.needs[of])
	})
}

// show writes a page. It is made in full before its first byte is sent, so that a
// page that cannot be made is an error and not half a page.
func (s *server) show(req *request, v *view) {
	if v.alone {
		req.caller = nil // whoever has a link sees what every other one sees
	}
	f := frame{
		Title: v.title, Nav: s.navigation(req, v.nav), Actor: req.actor, Subject: req.subject(), SignsIn: s.Auth != nil, Token: req.token, Self: req.self(), Live: v.live,
		ReadOnly: s.ReadOnly, Alone: v.alone, Version: s.Version, Now: req.now, Asset: s.assetPath, Held: s.held(req), Body: v.body,
		server: s, req: req,
	}
	if s.Feed != nil && v.live && req.sees(access.ReadEvents) {
		f.Feed = Root + streamPath
	}
	if !v.alone {
		f.Note, f.Warning = req.takeNote()
	}
	var made bytes.Buffer
	if err := s.pages[v.page].ExecuteTemplate(&made, "frame", f); err != nil {
		s.Log.ErrorContext(req.Context(), "a page could not be made", "page", v.page, "err", err)
		http.Error(req.w, "this page could not be made; the server's log says why", http.StatusInternalServerError)
		return
	}
	text := markBidi(made.String())
	h := req.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	status := v.status
	if status == 0 {
		status = http.StatusOK
	}
	if !acceptsGzip(req.Request) {
		req.w.WriteHeader(status)
		_, _ = io.WriteString(req.w, text) // when the browser is gone, there is nobody to tell
		return
	}
	h.Set("Content-Encoding", "gzip")
	req.w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(req.w, gzip.BestSpeed) // the level is one
	_, _ = io.WriteString(z, text)
	_ = z.Close()
}

// A form sends these back as they were given.
var formValues = regexp.MustCompile(`(?s)<textarea\b.*?</textarea>|\svalue="[^"]*"`)

// markBidi is [payload.MarkBidi] for a page, but for the values of its forms. None of
// its own text has such a character.
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

// An asset is a file that pages load. Its address has its hash, so a browser may
// keep it for ever.
type asset struct {
	kind  string // its media type
	hash  string
	plain []byte
	small []byte // compressed
}

// loadedAssets are those of all servers.
var loadedAssets = sync.OnceValue(loadAssets)

func loadAssets() map[string]asset {
	assets := map[string]asset{}
	err := fs.WalkDir(staticFiles, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := staticFiles.ReadFile(name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(text)
		assets[path.Base(name)] = asset{
			kind: mime.TypeByExtension(path.Ext(name)), hash: hex.EncodeToString(sum[:6]), plain: text, small: compress(text),
		}
		return nil
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return assets
}

func compress(text []byte) []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is one
	_, _ = z.Write(text)
	_ = z.Close()
	return b.Bytes()
}

// assetPath is where a page finds an asset.
func (s *server) assetPath(name string) string {
	return Root + "/static/" + name + "?v=" + s.assets[name].hash
}

func (s *server) static(w http.ResponseWriter, r *http.Request) {
	a, ok := s.assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	if r.URL.Query().Get("v") == a.hash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	text := a.plain
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		text = a.small
	}
	_, _ = w.Write(text) // when the browser is gone, there is nobody to tell
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

// functions are what templates can say. None of them returns HTML but [moment],
// which is built from times only.
var functions = template.FuncMap{
	"ago": ago, "lasted": length, "moment": moment, "momentOf": momentOf, "minutes": minutes, "minutesOf": func(m *float64) string { return minutes(*m) }, "document": func(name string, doc json.RawMessage) document { return documentOf(name, doc, maxShown, "") },
	"opened": document.opened, "tagged": taggedPath, "attributed": attributedPath, "correlated": correlatedPath, "words": words, "short": short,
	"stateKind": stateKind, "severityKind": severityKind, "cause": tasker.CauseOf, "count": count, "endedOf": endedOf, "text": text, "shown": shown, "clip": clip, "dict": dict, "span": span,
}

// moment is an instant as a page shows it: how long ago, with the time in UTC
// beside it for who points at it, both of which the script brings into the reader's
// zone and up to date.
func moment(at time.Time) template.HTML {
	if at.IsZero() {
		return "–"
	}
	utc := at.UTC().Format(time.RFC3339)
	return template.HTML(`<time datetime="` + utc + `" title="` + at.UTC().Format("2006-01-02 15:04:05 UTC") + `">` +
		template.HTMLEscapeString(ago(at)) + `</time>`)
}

func momentOf(at *time.Time) template.HTML {
	if at == nil {
		return "–"
	}
	return moment(*at)
}

// ago says how long ago an instant was, or how far ahead it is.
func ago(at time.Time) string {
	d := time.Since(at)
	if d < 0 {
		return "in " + length(-d)
	}
	return length(d) + " ago"
}

// minutes spells a number of minutes as a length.
func minutes(m float64) string { return length(time.Duration(m * float64(time.Minute))) }

// length is how long, in the two units that matter.
func length(d time.Duration) string {
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

// maxShown bounds what a page shows of one document, in bytes.
const maxShown = 256 << 10

// A document is JSON, of which a page may show the beginning only.
type document struct {
	ID    string // of the element; may be empty
	Name  string
	Text  string // indented
	Size  string
	Whole string // where the API has all of it
	Cut   bool
	Open  bool // shown at once
}

// documentOf returns a document of which at most so many bytes are shown.
func documentOf(name string, doc json.RawMessage, most int, whole string) document {
	d := document{Name: name, Size: count(len(doc), "byte"), Whole: whole}
	if len(doc) <= most {
		if d.Text = pretty(doc); len(d.Text) <= 2*most {
			return d
		}
		doc = json.RawMessage(d.Text) // so deep that it is mostly indentation
	}
	d.Text, d.Cut = strings.ToValidUTF8(string(doc[:most]), ""), true
	return d
}

func (d document) withID(id string) document {
	d.ID = id
	return d
}

func (d document) opened() document {
	d.Open = true
	return d
}

// pretty indents a JSON document; other text is shown as it is. Numbers are not
// parsed, so they stay as they were written.
func pretty(doc json.RawMessage) string {
	if len(doc) == 0 {
		return ""
	}
	var b bytes.Buffer
	if json.Indent(&b, doc, "", "  ") != nil {
		return string(doc)
	}
	return b.String()
}

// words spells a name of a state or a reason for people.
func words(name any) string { return strings.ReplaceAll(fmt.Sprint(name), "_", " ") }

// short is the end of an id, by which people tell ids apart: ids of one time begin
// alike.
func short(id any) string {
	s := text(id)
	if len(s) == 36 {
		return s[24:]
	}
	return s
}

// text spells a value, and nothing for nil.
func text(v any) string {
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

// count spells a number with its noun, and separates thousands.
func count(n any, noun string) string {
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

// stateKind is the look of a state of a task or a step: good, busy, idle, bad, off.
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

// severityKind is the look of a severity.
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

// shown returns a text unless it is hidden from the caller.
func shown(text string) string {
	if text == access.Hidden {
		return ""
	}
	return text
}

// dict makes the named arguments of a shared piece.
func dict(pairs ...any) (map[string]any, error) {
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
