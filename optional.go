package tasker

import (
	"bytes"
	"encoding/json"
)

// OptionalString is a string that JSON represents as null if it is empty.
type OptionalString string

// MarshalJSON returns null if s is empty.
func (s OptionalString) MarshalJSON() ([]byte, error) { return marshalOptional(string(s)) }

// OptionalID is an id that JSON represents as an empty string if it is zero.
type OptionalID struct{ ID }

// IsZero reports whether o is empty.
func (o OptionalID) IsZero() bool { return o.ID == ID{} }

// String formats the id. It returns "" if o is empty.
func (o OptionalID) String() string {
	if o.IsZero() {
		return ""
	}
	return o.ID.String()
}

// MarshalText encodes o as String does.
func (o OptionalID) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText decodes the result of MarshalText.
func (o *OptionalID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		o.ID = ID{}
		return nil
	}
	return o.ID.UnmarshalText(text)
}

// marshalOptional encodes a string, or null if it is empty. The outer encoder escapes HTML.
func marshalOptional(s string) ([]byte, error) {
	if s == "" {
		return []byte("null"), nil
	}
	var doc bytes.Buffer
	enc := json.NewEncoder(&doc)
	enc.SetEscapeHTML(false)
	err := enc.Encode(s)
	return doc.Bytes(), err
}
