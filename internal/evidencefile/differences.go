package evidencefile

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxPlaces limits the reported differences of one document. Beyond it, the whole document counts
// as different.
const maxPlaces = 1000

// findDifferences returns the places where two versions of a document differ, as JSON pointers that
// begin with at. A place includes everything below it.
func findDifferences(was, is json.RawMessage, at string) []string {
	if bytes.Equal(was, is) {
		return nil
	}
	c := comparison{}
	c.compare(decode(was), decode(is), at)
	if len(c.places) > maxPlaces {
		return []string{at}
	}
	return c.places
}

type comparison struct{ places []string }

func (c *comparison) compare(was, is any, at string) {
	if len(c.places) > maxPlaces {
		return
	}
	switch was := was.(type) {
	case map[string]any:
		if is, ok := is.(map[string]any); ok && slices.Equal(sortedKeys(was), sortedKeys(is)) {
			for _, key := range sortedKeys(was) {
				c.compare(was[key], is[key], at+formatPointer(key))
			}
			return
		}
	case []any:
		if is, ok := is.([]any); ok && len(was) == len(is) {
			for i := range was {
				c.compare(was[i], is[i], at+"/"+strconv.Itoa(i))
			}
			return
		}
	default:
		if was == is {
			return
		}
	}
	c.places = append(c.places, at)
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

func decode(doc json.RawMessage) (v any) {
	d := json.NewDecoder(bytes.NewReader(doc))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// formatPointer returns the JSON pointer of keys.
func formatPointer(keys ...string) string {
	var b strings.Builder
	for _, key := range keys {
		b.WriteString("/" + escapes.Replace(key))
	}
	return b.String()
}
