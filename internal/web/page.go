package web

import (
	"bytes"
	"compress/gzip"
	"embed"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"time"

	"tasker.example/tasker/internal/payload"
)

//go:embed templates/*.html
var templateFiles embed.FS

// pages are the templates of the pages by name, each with the frame around it and
// the pieces that several share (files whose name begins with an underscore).
type pages map[string]*template.Template

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
	Token    string
	Self     string // the path of this page with its query, to share and to come back to
	Live     bool
	ReadOnly bool
	Version  string
	Now      time.Time
	Asset    func(name string) string
	Body     any
}

// A link of the navigation.
type link struct {
	Name, Path, Key string
	Here            bool
}

func navigation(here string) []link {
	list := []link{
		{Name: "Queue", Path: Root + "/", Key: "g q"},
		{Name: "Tasks", Path: Root + "/tasks", Key: "g t"},
		{Name: "Staleness", Path: Root + "/staleness", Key: "g s"},
		{Name: "Dashboard", Path: Root + "/dashboard", Key: "g d"},
		{Name: "Workers", Path: Root + "/workers", Key: "g w"},
		{Name: "Emissions", Path: Root + "/emissions", Key: "g e"},
	}
	for i := range list {
		list[i].Here = list[i].Name == here
	}
	return list
}

// show writes a page. It is made in full before its first byte is sent, so that a
// page that cannot be made is an error and not half a page.
func (s *server) show(x *exchange, v *view) {
	f := frame{
		Title: v.title, Nav: navigation(v.nav), Actor: x.actor, Token: x.token, Self: x.self(), Live: v.live,
		ReadOnly: s.ReadOnly, Version: s.Version, Now: x.now, Asset: s.assetPath, Body: v.body,
	}
	f.Note, f.Warning = x.takeNote()
	var made bytes.Buffer
	if err := s.pages[v.page].ExecuteTemplate(&made, "frame", f); err != nil {
		s.Log.ErrorContext(x.Context(), "a page could not be made", "page", v.page, "err", err)
		http.Error(x.w, "this page could not be made; the server's log says why", http.StatusInternalServerError)
		return
	}
	text := markBidi(made.String())
	h := x.w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Vary", "Accept-Encoding")
	status := v.status
	if status == 0 {
		status = http.StatusOK
	}
	if !acceptsGzip(x.Request) {
		x.w.WriteHeader(status)
		_, _ = io.WriteString(x.w, text) // when the browser is gone, there is nobody to tell
		return
	}
	h.Set("Content-Encoding", "gzip")
	x.w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(x.w, gzip.BestSpeed) // the level is one
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
