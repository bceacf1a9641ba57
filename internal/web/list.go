package web

import (
	"net/url"
	"strconv"

	"tasker.example/tasker"
)

// Bounds of every list.
const (
	pageRows  = 100
	maxRows   = 1000
	maxOffset = 1_000_000
)

// A pager leads through a list that is longer than a page.
type pager struct {
	Before, After string // addresses; empty at the ends
	Here          string // such as 101–200
}

// pagerOf is the pager of a list of which shown rows are on this page, after offset.
func pagerOf(x *exchange, offset, limit, shown int, more bool) pager {
	at := func(offset int) string {
		q := x.URL.Query()
		q.Del("offset")
		if offset > 0 {
			q.Set("offset", strconv.Itoa(offset))
		}
		u := url.URL{Path: x.URL.Path, RawQuery: q.Encode()}
		return u.String()
	}
	var p pager
	if offset > 0 {
		p.Before = at(max(0, offset-limit))
	}
	if more {
		p.After = at(offset + limit)
	}
	if shown > 0 {
		p.Here = strconv.Itoa(offset+1) + "–" + strconv.Itoa(offset+shown)
	}
	return p
}

// number reads a number of the query. What is none is an error that says so.
func (x *exchange) number(name string, byself, least, most int) (int, error) {
	text := x.URL.Query().Get(name)
	if text == "" {
		return byself, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, tasker.Errorf(tasker.Invalid, "%s must be a number from %d to %d, not %q", name, least, most, clip(text, 40))
	}
	return n, nil
}

// choice reads one of a few words of the query; none of them is "".
func choice[T ~string](x *exchange, name string, values []T) (T, error) {
	text := x.URL.Query().Get(name)
	if text == "" {
		return "", nil
	}
	for _, v := range values {
		if string(v) == text {
			return v, nil
		}
	}
	return "", tasker.Errorf(tasker.Invalid, "%s is none of %v: %q", name, values, clip(text, 40))
}

// id reads an id of the path.
func (x *exchange) id(name string) (tasker.ID, error) {
	var id tasker.ID
	if err := id.UnmarshalText([]byte(x.PathValue(name))); err != nil {
		return id, tasker.Errorf(tasker.NotFound, "%q is no id", clip(x.PathValue(name), 40))
	}
	return id, nil
}
