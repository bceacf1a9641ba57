package redact

import (
	"bytes"
	"encoding/json"
	"log/slog"
)

// Attr redacts an attribute of a log record, at any depth. Use it in [slog.HandlerOptions].
func (r Rules) Attr(_ []string, a slog.Attr) slog.Attr {
	if r.keys == nil {
		return a
	}
	if r.isSecretKey(a.Key) {
		return slog.String(a.Key, Hidden)
	}
	switch a.Value.Kind() {
	case slog.KindString:
		return slog.String(a.Key, r.Text(a.Value.String()))
	case slog.KindAny:
	default:
		return a // slog calls Attr for each member of a group
	}
	switch v := a.Value.Any().(type) {
	case slog.Level, *slog.Source:
		return a
	case error:
		if text := v.Error(); r.Text(text) != text {
			return slog.String(a.Key, r.Text(text))
		}
		return a
	}
	if doc, changed := r.document(a.Value.Any()); changed {
		return slog.Any(a.Key, doc)
	}
	return a
}

// document returns v as decoded JSON with hidden values redacted. It reports whether it redacted
// any.
func (r Rules) document(v any) (any, bool) {
	raw, err := json.Marshal(v)
	if err != nil || !bytes.ContainsAny(raw, "{[") {
		return nil, false
	}
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, false
	}
	return r.redactDocument(doc)
}

// redactDocument redacts doc and reports whether it changed anything. It must match the SQL
// function redact_keys.
func (r Rules) redactDocument(doc any) (shown any, hidden bool) {
	var one bool
	switch d := doc.(type) {
	case map[string]any:
		named := r.hasSecretName(d)
		for key, value := range d {
			if value != nil && (named && key == "value" || r.isSecretKey(key)) {
				d[key], one = Hidden, true
			} else {
				d[key], one = r.redactDocument(value)
			}
			hidden = hidden || one
		}
	case []any:
		for i, value := range d {
			d[i], one = r.redactDocument(value)
			hidden = hidden || one
		}
	case string:
		text := r.Text(d)
		return text, text != d
	}
	return doc, hidden
}

// hasSecretName reports whether an object is a pair with a hidden name, such as {"name":
// "password", "value": 1}.
func (r Rules) hasSecretName(d map[string]any) bool {
	for _, by := range []string{"name", "key"} {
		if name, ok := d[by].(string); ok && r.isSecretKey(name) {
			return true
		}
	}
	return false
}
