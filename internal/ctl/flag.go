package ctl

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tasker.example/tasker/client"
)

// Bounds of every list, as the server has them.
const (
	maxLimit  = 1000
	maxOffset = 10_000_000
)

// A bounded is the value of a flag that is a number with bounds.
type bounded struct {
	n           *int
	least, most int
}

// String returns the number.
func (b bounded) String() string { return strconv.Itoa(*b.n) }

// Type is what the help calls the value.
func (b bounded) Type() string { return "int" }

// Set reads the number.
func (b bounded) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < b.least || n > b.most {
		return fmt.Errorf("it must be a number from %d to %d", b.least, b.most)
	}
	*b.n = n
	return nil
}

// limitFlag says how long a list may be.
func limitFlag(c *cobra.Command, limit *int, byself int) {
	*limit = byself
	c.Flags().VarP(bounded{limit, 1, maxLimit}, "limit", "l", fmt.Sprintf("how many to show, at most %d", maxLimit))
}

// pageFlags are those of every list that goes on.
func pageFlags(c *cobra.Command, page *client.Page, limit int) {
	limitFlag(c, &page.Limit, limit)
	c.Flags().Var(bounded{&page.Offset, 0, maxOffset}, "offset", "leave out the first so many")
}

// flagError says what is wrong with a flag in words that are not Go's.
func flagError(_ *cobra.Command, err error) error {
	var wrong interface {
		error
		GetValue() string
		Unwrap() error
	}
	if !errors.As(err, &wrong) || wrong.Unwrap() == nil {
		return err
	}
	cause := wrong.Unwrap()
	said := strings.TrimSuffix(wrong.Error(), cause.Error())
	var number *strconv.NumError
	switch {
	case errors.As(cause, &number) && number.Func == "ParseBool":
		return usage{said + "it must be true or false"}
	case errors.As(cause, &number):
		return usage{said + "it must be a whole number"}
	case strings.HasPrefix(cause.Error(), "time: "):
		return usage{said + "it must be a span such as 500ms, 30s or 5m"}
	default:
		return usage{wrong.Error()}
	}
}

// refuseEmpty refuses a flag that is given without a value: what an unset
// variable stands for must not be taken for no flag.
func refuseEmpty(c *cobra.Command) error {
	for _, f := range collect(c.Flags().Visit) {
		text := strings.Trim(f.Value.String(), " \t\n")
		if (f.Value.Type() == "string" && text == "") || (f.Value.Type() == "stringSlice" && text == "[]") {
			return usage{"--" + f.Name + " is given but empty: give it a value (is a variable unset?)"}
		}
	}
	return nil
}

// collect lists what a visit shows.
func collect[T any](visit func(func(T))) []T {
	var list []T
	visit(func(v T) { list = append(list, v) })
	return list
}

// choices joins the values of an enumeration.
func choices[T ~string](values []T) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return strings.Join(list, ", ")
}
