package web

import (
	"bytes"
	"cmp"
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"

	"tasker.example/tasker/internal/endpoint"
	apiquery "tasker.example/tasker/internal/query"
)

// command contains the tasker-ctl and curl commands that are equivalent to an action, for the
// template "elsewhere".
type command struct{ CLI, Curl string }

// described is an endpoint of the API.
type described interface{ Describe() endpoint.Endpoint }

// call is a request to the API and the tasker-ctl command that makes it.
type call struct {
	form         *form
	method, path string
	query        url.Values
	words        []string // of the command line
	hasBody      bool
	members      []string // of the body, encoded
}

// newCall returns a call of an endpoint by a tasker-ctl command. The ids are the parameters of the
// path and the arguments of the command.
func (f *form) newCall(e described, ctl string, ids ...string) *call {
	d := e.Describe()
	c := &call{form: f, method: d.Method, path: d.Path, query: url.Values{},
		words: append(strings.Fields(ctl), ids...), hasBody: d.Body != nil}
	for _, id := range ids {
		before, rest, _ := strings.Cut(c.path, "{")
		_, after, _ := strings.Cut(rest, "}")
		c.path = before + url.PathEscape(id) + after
	}
	return c
}

// set adds a flag and a member of the body with the same value.
func (c *call) set(flag, member string, value any) {
	c.flag(flag, value)
	c.member(member, value)
}

// flag adds a flag of the command line. It omits zero values.
func (c *call) flag(name string, value any) {
	v := reflect.ValueOf(value)
	if v.IsZero() {
		return
	}
	switch v := reflect.Indirect(v).Interface().(type) {
	case bool:
		c.words = append(c.words, name)
	case []string:
		for _, text := range v {
			c.words = append(c.words, name, text)
		}
	default:
		c.words = append(c.words, name, formatText(v))
	}
}

// member adds a member of the body, or a query parameter if there is no body. It omits zero values.
func (c *call) member(name string, value any) {
	switch {
	case reflect.ValueOf(value).IsZero():
	case c.hasBody:
		c.members = append(c.members, strconv.Quote(name)+":"+compactJSON(value))
	default:
		c.query.Set(name, formatText(value))
	}
}

// setReason adds the typed reason or a placeholder.
func (c *call) setReason() { c.set("--reason", "reason", c.form.reasonOr("why")) }

// setActor adds the actor, unless the API key identifies it.
func (c *call) setActor(flag, member string) {
	if c.form.Subject == "" {
		c.set(flag, member, c.form.actorOrExample())
	}
}

// setNamedActor is like setActor for a body that requires the actor.
func (c *call) setNamedActor(flag, member string) {
	if c.form.Subject == "" {
		c.flag(flag, c.form.actorOrExample())
	}
	c.member(member, c.form.actorOrExample())
}

// actorOrExample returns the typed actor or a placeholder.
func (f *form) actorOrExample() string { return cmp.Or(f.Actor, "you@example.com") }

func (f *form) reasonOr(example string) string { return cmp.Or(f.Reason, example) }

// format returns the commands.
func (c *call) format() command {
	origin := c.form.req.requestOrigin()
	address := origin + c.path
	if len(c.query) > 0 {
		address += "?" + c.query.Encode()
	}
	curl := []string{"curl", "--fail-with-body", "-X", c.method, address}
	if c.hasBody {
		curl = append(curl, "-H", "Content-Type: application/json", "--data-raw", "{"+strings.Join(c.members, ",")+"}")
	}
	out := command{
		CLI:  formatCommandLine(append([]string{"tasker-ctl", "--server", origin}, c.words...)),
		Curl: formatCommandLine(curl),
	}
	if c.form.Subject != "" { // tasker-ctl reads the variable
		out.Curl = strings.Replace(out.Curl, "curl ", `curl -H "Authorization: Bearer $TASKER_TOKEN" `, 1)
	}
	return out
}

// formatWithActor is like format for a command without a flag for the actor.
func (c *call) formatWithActor() command {
	out := c.format()
	if c.form.Subject == "" {
		out.CLI = "TASKER_ACTOR=" + shellQuote(c.form.actorOrExample()) + " " + out.CLI
	}
	return out
}

// compactJSON encodes a value on one line without HTML escapes.
func compactJSON(v any) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "{}"
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// formatCommandLine joins the words of a shell command. It breaks long commands before flags.
func formatCommandLine(words []string) string {
	const wide = 100
	var b strings.Builder
	width := 0
	for i, w := range words {
		q := shellQuote(w)
		switch {
		case i == 0:
		case width+len(q) > wide && (strings.HasPrefix(w, "-") || width > wide):
			b.WriteString(" \\\n  ")
			width = 0
		default:
			b.WriteByte(' ')
		}
		b.WriteString(q)
		width += len(q) + 1
	}
	return b.String()
}

// shellQuote quotes a word for a POSIX shell.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+,=", r)
	}
	if word != "" && !strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// setFilter adds the parameters of a filter, to which f points, to the query and the command line.
func (c *call) setFilter(f any) {
	maps.Copy(c.query, apiquery.Encode(reflect.ValueOf(f).Elem().Interface()))
	c.words = append(c.words, formatFilterFlags(f)...)
}

// formatFilterFlags returns the tasker-ctl flags of a filter, to which f points.
func formatFilterFlags(f any) (flags []string) {
	v := reflect.ValueOf(f).Elem()
	encoded := apiquery.Encode(v.Interface())
	for _, p := range apiquery.Params(v.Type()) {
		name, _, _ := strings.Cut(cmp.Or(p.Flag, strings.ReplaceAll(p.Name, "_", "-")), ",")
		for _, value := range encoded[p.Name] {
			switch at := p.Field(f); {
			case p.Kind == apiquery.Bool && at.Kind() == reflect.Bool:
				flags = append(flags, "--"+name)
			case p.Kind == apiquery.Bool:
				flags = append(flags, "--"+name+"="+value)
			case at.Type() == reflect.TypeFor[time.Duration]():
				flags = append(flags, "--"+name, formatDuration(time.Duration(at.Int())))
			default:
				flags = append(flags, "--"+name, value)
			}
		}
	}
	return flags
}

// setMembers adds all members of an object to the body.
func (c *call) setMembers(object any) {
	if members := strings.Trim(compactJSON(object), "{}"); members != "" {
		c.members = append(c.members, members)
	}
}
