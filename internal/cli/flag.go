package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// ValueError describes the allowed values of a flag, as the error for an invalid value.
type ValueError string

// Error implements error.
func (e ValueError) Error() string { return "must be " + string(e) }

// wrapFlagError replaces the errors of package strconv with a description of the allowed values.
func wrapFlagError(_ *cobra.Command, err error) error {
	wrong, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok || wrong.Unwrap() == nil {
		return UsageError{err.Error()}
	}
	cause := wrong.Unwrap()
	var takes ValueError
	var number *strconv.NumError
	switch {
	case errors.As(cause, &takes):
	case errors.As(cause, &number) && number.Func == "ParseBool":
		takes = "true or false"
	case errors.As(cause, &number):
		takes = "a whole number"
	default:
		return UsageError{err.Error()}
	}
	return Usagef("--%s must be %s, not %q", wrong.GetFlag().Name, string(takes), wrong.GetValue())
}

// value is the value of a flag. Its fields implement [pflag.Value].
type value struct {
	kind  string // for the help
	text  func() string
	set   func(text string) error
	words []string // for shell completion
}

// NewValue returns the value of a flag. kind is its type for the help, text returns the current value and
// set parses a new one.
func NewValue(kind string, text func() string, set func(text string) error) pflag.Value {
	return value{kind: kind, text: text, set: set}
}

// String implements pflag.Value.
func (v value) String() string { return v.text() }

// Type implements pflag.Value.
func (v value) Type() string { return v.kind }

// Set implements pflag.Value.
func (v value) Set(text string) error { return v.set(text) }

// Number returns a [pflag.Value] that parses a number from least to most into n. If most is 0,
// there is no upper bound.
func Number[N int | int64](n *N, least, most N) pflag.Value {
	return NewValue("int", func() string { return strconv.FormatInt(int64(*n), 10) }, func(text string) error {
		number, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err == nil && number >= int64(least) && (most == 0 || number <= int64(most)):
			*n = N(number)
			return nil
		case most == 0:
			return ValueError(fmt.Sprintf("a number of at least %d", least))
		default:
			return ValueError(fmt.Sprintf("a number from %d to %d", least, most))
		}
	})
}

// durations is a set of durations: the multiples of step from least to most.
type durations struct{ step, least, most time.Duration } // most 0: unbounded

// value returns the value of a flag for a duration of the set.
func (r durations) value(d *time.Duration) pflag.Value {
	text := func() string {
		if *d == 0 {
			return ""
		}
		return d.String()
	}
	return NewValue("duration", text, func(text string) error {
		parsed, err := ParseDuration(text)
		if err != nil || !r.contains(parsed) {
			return ValueError(r.describe())
		}
		*d = parsed
		return nil
	})
}

func (r durations) contains(d time.Duration) bool {
	return d >= r.least && (r.most == 0 || d <= r.most) && d%r.step == 0
}

// describe describes the durations, with examples.
func (r durations) describe() string {
	var examples []string
	for _, text := range []string{"500ms", "30s", "5m", "4h", "12h", "7d", "90d"} {
		if d, _ := ParseDuration(text); r.contains(d) {
			examples = append(examples, text)
		}
	}
	words := "a duration"
	if n := len(examples); n > 0 {
		words = fmt.Sprintf("a duration such as %s, %s or %s", examples[0], examples[n/2], examples[n-1])
	}
	if r.step >= time.Minute {
		words += ", in whole minutes"
	}
	switch {
	case r.most > 0:
		words += fmt.Sprintf(", from %s to %s", formatDuration(r.least), formatDuration(r.most))
	case r.least > 0:
		words += fmt.Sprintf(", %s or more", formatDuration(r.least))
	}
	return words
}

// formatDuration formats a duration as 1m or 7d.
func formatDuration(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

const day = 24 * time.Hour

// longUnit matches a number of days or weeks, such as 7d or 1.5w.
var longUnit = regexp.MustCompile(`([0-9]+(?:\.[0-9]+)?)([dw])`)

// ParseDuration is like [time.ParseDuration] but also accepts days and weeks: 7d, 1w, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	return time.ParseDuration(longUnit.ReplaceAllStringFunc(text, func(part string) string {
		n, _ := strconv.ParseFloat(part[:len(part)-1], 64) // the pattern matches only numbers
		if n *= 24; strings.HasSuffix(part, "w") {
			n *= 7
		}
		return strconv.FormatFloat(n, 'f', -1, 64) + "h"
	}))
}

// Duration returns a [pflag.Value] that parses a duration into d. It sets d to defaultValue.
func Duration(d *time.Duration, defaultValue time.Duration) pflag.Value {
	*d = defaultValue
	return durations{step: 1}.value(d)
}

// Minutes returns a [pflag.Value] that parses a duration of whole minutes into d. The minimum is
// least.
func Minutes(d *time.Duration, least time.Duration) pflag.Value {
	return durations{step: time.Minute, least: least}.value(d)
}

// Span returns a [pflag.Value] that parses a duration of whole seconds, from least to most, into d.
func Span(d *time.Duration, least, most time.Duration) pflag.Value {
	return durations{time.Second, least, most}.value(d)
}

// newTimeValue returns the value of a flag for a time, which get returns and set changes. If relative is
// set, it also accepts a duration from now. [RejectEmpty] rejects the empty value.
func newTimeValue(relative bool, get func() *time.Time, set func(time.Time)) pflag.Value {
	text := func() string {
		if t := get(); t != nil && !t.IsZero() {
			return t.Format(time.RFC3339Nano)
		}
		return ""
	}
	return NewValue("time", text, func(text string) error {
		if text == "" {
			return nil
		}
		at, err := parseTime(text, relative)
		if err == nil {
			set(at)
		}
		return err
	})
}

func parseTime(text string, relative bool) (time.Time, error) {
	description := ValueError("a time such as 2026-01-31T12:00:00Z")
	if relative {
		description += ", or +90m from now"
		if span, ok := strings.CutPrefix(text, "+"); ok {
			if d, err := ParseDuration(span); err == nil && d >= 0 {
				return time.Now().Add(d).UTC(), nil
			}
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return t, description
	}
	return t, nil
}

// Time returns a [pflag.Value] that parses a time in RFC 3339 format into t.
func Time[T time.Time | *time.Time](t *T) pflag.Value {
	switch t := any(t).(type) {
	case **time.Time:
		return newOptionalTime(t, false)
	case *time.Time:
		return newTimeValue(false, func() *time.Time { return t }, func(at time.Time) { *t = at })
	default:
		return nil // T has no other type
	}
}

// TimeOrSpan is like [Time] but also accepts a duration from now, such as +90m.
func TimeOrSpan(t **time.Time) pflag.Value { return newOptionalTime(t, true) }

func newOptionalTime(t **time.Time, relative bool) pflag.Value {
	return newTimeValue(relative, func() *time.Time { return *t }, func(at time.Time) { *t = &at })
}

// Choice returns a [pflag.Value] that accepts one of words. [ConfigureRoot] enables shell
// completion of the words. [RejectEmpty] rejects the empty value.
func Choice[T ~string](current *T, words []T) pflag.Value {
	return value{"string", func() string { return string(*current) }, func(text string) error {
		if text != "" && !slices.Contains(words, T(text)) {
			return ValueError("one of " + Join(words))
		}
		*current = T(text)
		return nil
	}, Strings(words)}
}

// Choices returns a [pflag.Value] that accepts any of words, separated by commas. The flag can be
// repeated.
func Choices[T ~string](values *[]string, words []T) pflag.Value {
	return value{"strings", func() string { return "[" + strings.Join(*values, ",") + "]" }, func(text string) error {
		for word := range strings.SplitSeq(text, ",") {
			if err := Choice(new(T), words).Set(word); err != nil {
				return err
			}
			*values = append(*values, word)
		}
		return nil
	}, Strings(words)}
}

// Optional adds a flag that is true, false or unset.
func Optional(c *cobra.Command, current **bool, name, usage string) {
	text := func() string {
		if *current == nil {
			return ""
		}
		return strconv.FormatBool(**current)
	}
	c.Flags().Var(NewValue("bool", text, func(text string) error {
		is, err := strconv.ParseBool(text)
		*current = &is
		return err
	}), name, usage)
	c.Flags().Lookup(name).NoOptDefVal = "true"
}

// completeFlags enables shell completion of flag values.
func completeFlags(c *cobra.Command) {
	each := func(f *pflag.Flag) {
		if v, ok := f.Value.(value); ok && v.words != nil {
			complete := cobra.FixedCompletions(v.words, cobra.ShellCompDirectiveNoFileComp)
			if err := c.RegisterFlagCompletionFunc(f.Name, complete); err != nil {
				panic(err) // registered twice
			}
		}
	}
	c.LocalFlags().VisitAll(each)
}

// Strings returns words as strings.
func Strings[T ~string](words []T) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return list
}

// Join joins words with commas.
func Join[T ~string](words []T) string { return strings.Join(Strings(words), ", ") }

// emptyTexts maps the types of flags that can be empty to their empty value.
var emptyTexts = map[string]string{"string": "", "time": "", "strings": "[]"}

// RejectEmpty returns a usage error if a flag has an empty value, which suggests that a shell
// variable is unset.
func RejectEmpty(c *cobra.Command) error {
	var err error
	c.Flags().Visit(func(f *pflag.Flag) {
		text := strings.Trim(f.Value.String(), " \t\n")
		list, ok := f.Value.(pflag.SliceValue)
		empty := ok && slices.ContainsFunc(list.GetSlice(), func(s string) bool { return strings.TrimSpace(s) == "" })
		none, textual := emptyTexts[f.Value.Type()]
		if empty || textual && text == none {
			err = Usagef("--%s is empty: set a value (is a variable unset?)", f.Name)
		}
	})
	return err
}
