package redact

import (
	"bytes"
	"encoding/json"
	"log/slog"
)

// Attr hides what must not be shown in a line of a log, at any depth. It is for
// [slog.HandlerOptions].
func (r Rules) Attr(_ []string, a slog.Attr) slog.Attr {
	if r.keys == nil {
		return a
	}
	if r.hides(a.Key) {
		return slog.String(a.Key, Hidden)
	}
	if a.Value.Kind() != slog.KindAny {
		return a // groups come here member by member
	}
	switch a.Value.Any().(type) {
	case error, slog.Level, *slog.Source:
		return a
	}
	if doc, changed := r.document(a.Value.Any()); changed {
		return slog.Any(a.Key, doc)
	}
	return a
}

// document returns v as JSON reads it, with what must not be shown hidden, and
// reports whether anything was.
func (r Rules) document(v any) (any, bool) {
	raw, err := json.Marshal(v)
	if err != nil || !bytes.ContainsAny(raw, "{[") {
		return nil, false
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, false
	}
	return doc, r.hide(doc)
}

// hide hides in place.
func (r Rules) hide(doc any) (hidden bool) {
	switch d := doc.(type) {
	case map[string]any:
		for key, value := range d {
			if value != nil && r.hides(key) {
				d[key] = Hidden
				hidden = true
				continue
			}
			hidden = r.hide(value) || hidden
		}
	case []any:
		for _, value := range d {
			hidden = r.hide(value) || hidden
		}
	}
	return hidden
}
