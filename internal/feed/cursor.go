package feed

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"tasker.example/tasker"
)

// A Cursor is a reader's position: it has all events of transactions before From, and those of
// [From, Before) up to position After.
type Cursor struct {
	Database     string // see postgres.Horizon; empty is any
	From, Before uint64
	After        int64
}

// String spells a point as readers keep it.
func (p Cursor) String() string {
	text := fmt.Sprintf("%d.%d.%d", p.From, p.Before, p.After)
	if p.Database != "" {
		text = p.Database + "." + text
	}
	return text
}

var database = regexp.MustCompile(`^[0-9a-f]{12}$`)

// ParsePoint parses [Cursor.String], or returns Invalid. Version 1 has no database.
func ParsePoint(text string) (Cursor, error) {
	wrong := tasker.Errorf(tasker.Invalid, "invalid id to resume from, %.60q: must be the last id that was received from this feed, unchanged", text)
	parts := strings.Split(text, ".")
	var p Cursor
	if len(parts) == 4 && database.MatchString(parts[0]) {
		p.Database, parts = parts[0], parts[1:]
	}
	if len(parts) != 3 {
		return Cursor{}, wrong
	}
	var errs [3]error
	p.From, errs[0] = strconv.ParseUint(parts[0], 10, 63)
	p.Before, errs[1] = strconv.ParseUint(parts[1], 10, 63)
	p.After, errs[2] = strconv.ParseInt(parts[2], 10, 64)
	for _, err := range errs {
		if err != nil {
			return Cursor{}, wrong
		}
	}
	if p.From > p.Before || p.After < 0 || p.String() != text {
		return Cursor{}, wrong
	}
	return p, nil
}

// cursorBefore is the point after all events of transactions before one.
func cursorBefore(transaction uint64) Cursor { return Cursor{From: transaction, Before: transaction} }
