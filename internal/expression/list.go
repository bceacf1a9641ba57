package expression

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// ListLimits limits the list that an expression returns.
type ListLimits struct {
	Elements     int
	Bytes        int // of all elements as JSON
	ElementBytes int
}

// List evaluates an expression that returns a list, and returns its elements as JSON. An expression
// that is only a path, such as results.a.lines, returns the elements byte for byte. Errors are
// those of [Program.Bool].
func (p *Program) List(ctx context.Context, v Values, l ListLimits) ([]json.RawMessage, error) {
	if p.path != nil {
		return p.listAt(v, l)
	}
	out, err := p.evaluate(ctx, v)
	if err != nil {
		return nil, err
	}
	lister, ok := out.(traits.Lister)
	if !ok {
		return nil, p.newFailure("must be a list, not " + withArticle(out.Type().TypeName()))
	}
	if n, ok := lister.Size().(types.Int); !ok || int64(n) > int64(l.Elements) {
		return nil, p.newFailure(fmt.Sprintf("the list has %d elements; the limit is %d", n, l.Elements))
	}
	list := []json.RawMessage{}
	total := 0
	for it := lister.Iterator(); it.HasNext() == types.True; {
		w := jsonWriter{free: min(l.ElementBytes, l.Bytes-total)}
		if err := w.write(it.Next()); err != nil {
			if _, ok := errors.AsType[notJSONError](err); ok {
				err = errNoJSON
			}
			return nil, p.newFailure(fmt.Sprintf("element %d of the list: %s", len(list), err))
		}
		total += w.out.Len()
		list = append(list, w.out.Bytes())
	}
	return list, nil
}

// listAt returns the elements of the list at the path that the expression consists of.
func (p *Program) listAt(v Values, l ListLimits) ([]json.RawMessage, error) {
	doc, err := p.withNames(v)
	if err != nil {
		return nil, err
	}
	list := []json.RawMessage{}
	if doc = bytes.TrimSpace(doc); len(doc) == 0 || doc[0] != '[' || json.Unmarshal(doc, &list) != nil {
		return nil, p.newFailure("must be a list")
	}
	if len(list) > l.Elements {
		return nil, p.newFailure(fmt.Sprintf("the list has %d elements; the limit is %d", len(list), l.Elements))
	}
	total := 0
	for i, element := range list {
		if total += len(element); total > l.Bytes || len(element) > l.ElementBytes {
			return nil, p.newFailure(fmt.Sprintf("element %d of the list: %s", i, errTooMany))
		}
	}
	return list, nil
}

var (
	errTooMany = errors.New("the list is too large")
	errNoJSON  = errors.New("contains a value that JSON cannot represent")
)

// notJSONError describes a value that JSON cannot represent.
type notJSONError string

// Error returns the description.
func (e notJSONError) Error() string { return string(e) }

func newNotJSONError(v ref.Val) error {
	return notJSONError("contains " + withArticle(v.Type().TypeName()) + ", which JSON cannot represent")
}

// jsonWriter encodes values as JSON. It fails if the result exceeds free bytes.
type jsonWriter struct {
	out   bytes.Buffer
	free  int
	texts bool // encode durations as strings and absent optional values as null
}

func (w *jsonWriter) write(v ref.Val) error {
	switch x := v.(type) {
	case *types.Err: // only parseNumber returns errors
		return errors.New(errRange)
	case types.Bool, types.String:
		return w.plain(x.Value())
	case types.Double, types.Int, types.Uint, exactNumber:
		if d, finite := toDecimal(x); finite {
			return w.text(d.String())
		}
	case types.Null:
		return w.text("null")
	case types.Timestamp:
		return w.plain(x.UTC().Format(time.RFC3339Nano))
	case types.Duration:
		if w.texts {
			return w.plain(x.String())
		}
	case *types.Optional:
		switch {
		case w.texts && x.HasValue():
			return w.write(x.GetValue())
		case w.texts:
			return w.text("null")
		}
	case traits.Mapper:
		return w.object(x)
	case traits.Lister:
		return w.list(x)
	}
	return newNotJSONError(v)
}

func (w *jsonWriter) list(l traits.Lister) error {
	err := w.text("[")
	for it, n := l.Iterator(), 0; err == nil && it.HasNext() == types.True; n++ {
		if n > 0 {
			err = w.text(",")
		}
		err = errors.Join(err, w.write(it.Next()))
	}
	return errors.Join(err, w.text("]"))
}

func (w *jsonWriter) object(m traits.Mapper) error {
	var keys []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		key, ok := it.Next().(types.String)
		if !ok {
			return notJSONError("contains an object with a key that is not a string")
		}
		keys = append(keys, string(key))
	}
	slices.Sort(keys)
	err := w.text("{")
	for n, key := range keys {
		if n > 0 {
			err = errors.Join(err, w.text(","))
		}
		err = errors.Join(err, w.plain(key), w.text(":"))
		if err != nil {
			return err
		}
		if err = w.write(m.Get(types.String(key))); err != nil {
			return err
		}
	}
	return errors.Join(err, w.text("}"))
}

func (w *jsonWriter) plain(v any) error {
	doc, err := json.Marshal(v)
	if err != nil {
		return errNoJSON
	}
	return w.text(string(doc))
}

func (w *jsonWriter) text(s string) error {
	if w.free -= len(s); w.free < 0 {
		return errTooMany
	}
	w.out.WriteString(s)
	return nil
}
