package feed

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"tasker.example/tasker"
)

// A Cursor is the position of a reader. It is after all events of transactions before From, and
// after those of transactions in [From, Before) up to position After.
type Cursor struct {
	Database     string // see postgres.Horizon; empty matches any
	From, Before uint64
	After        int64
}

// String formats a cursor for readers.
func (p Cursor) String() string {
	text := fmt.Sprintf("%d.%d.%d", p.From, p.Before, p.After)
	if p.Database != "" {
		text = p.Database + "." + text
	}
	return text
}

var database = regexp.MustCompile(`^[0-9a-f]{12}$`)

// ParseCursor parses the result of [Cursor.String], with or without the database. The error is
// Invalid.
func ParseCursor(text string) (Cursor, error) {
	wrong := tasker.Errorf(tasker.Invalid,
		"invalid event id %.60q: must be the last id received from this feed, unchanged", text)
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

// cursorBefore returns the cursor that is after all events of earlier transactions.
func cursorBefore(transaction uint64) Cursor { return Cursor{From: transaction, Before: transaction} }
