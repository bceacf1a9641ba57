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

// boundedNumber is the value of a flag for a number within bounds.
type boundedNumber[N int | int64] struct {
	n           *N
	least, most N // most 0: unbounded
}

// String implements pflag.Value.
func (b boundedNumber[N]) String() string { return strconv.FormatInt(int64(*b.n), 10) }

// Type implements pflag.Value.
func (b boundedNumber[N]) Type() string { return "int" }

// Set implements pflag.Value.
func (b boundedNumber[N]) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < int64(b.least) || (b.most > 0 && n > int64(b.most)) {
		if b.most == 0 {
			return ValueError(fmt.Sprintf("a number of at least %d", b.least))
		}
		return ValueError(fmt.Sprintf("a number from %d to %d", b.least, b.most))
	}
	*b.n = N(n)
	return nil
}

// Number returns a [pflag.Value] that parses a number from least to most into n. If most is 0,
// there is no upper bound.
func Number[N int | int64](n *N, least, most N) pflag.Value { return boundedNumber[N]{n, least, most} }

// durationValue is the value of a flag for a multiple of step from least to most.
type durationValue struct {
	d                 *time.Duration
	step, least, most time.Duration // most 0: unbounded
}

// String implements pflag.Value.
func (v durationValue) String() string {
	if *v.d == 0 {
		return ""
	}
	return v.d.String()
}

// Type implements pflag.Value.
func (v durationValue) Type() string { return "duration" }

// Set implements pflag.Value.
func (v durationValue) Set(text string) error {
	d, err := ParseDuration(text)
	if err != nil || !v.allows(d) {
		return ValueError(v.describeRange())
	}
	*v.d = d
	return nil
}

func (v durationValue) allows(d time.Duration) bool {
	return d >= v.least && (v.most == 0 || d <= v.most) && d%v.step == 0
}

// describeRange describes the allowed durations, with examples.
func (v durationValue) describeRange() string {
	var examples []string
	for _, text := range []string{"500ms", "30s", "5m", "4h", "12h", "7d", "90d"} {
		if d, _ := ParseDuration(text); v.allows(d) {
			examples = append(examples, text)
		}
	}
	words := "a duration"
	if n := len(examples); n > 0 {
		words = fmt.Sprintf("a duration such as %s, %s or %s", examples[0], examples[n/2], examples[n-1])
	}
	if v.step >= time.Minute {
		words += ", in whole minutes"
	}
	switch {
	case v.most > 0:
		words += fmt.Sprintf(", from %s to %s", formatDuration(v.least), formatDuration(v.most))
	case v.least > 0:
		words += fmt.Sprintf(", %s or more", formatDuration(v.least))
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
	return durationValue{d, 1, 0, 0}
}

// Minutes returns a [pflag.Value] that parses a duration of whole minutes into d. The minimum is
// least.
func Minutes(d *time.Duration, least time.Duration) pflag.Value {
	return durationValue{d, time.Minute, least, 0}
}

// Span returns a [pflag.Value] that parses a duration of whole seconds, from least to most, into d.
func Span(d *time.Duration, least, most time.Duration) pflag.Value {
	return durationValue{d, time.Second, least, most}
}

// timeValue is the value of a flag for a time.
type timeValue[T time.Time | *time.Time] struct {
	t        *T
	relative bool // also accepts a duration from now
}

// String implements pflag.Value.
func (v timeValue[T]) String() string {
	switch t := any(v.t).(type) {
	case *time.Time:
		if !t.IsZero() {
			return t.Format(time.RFC3339Nano)
		}
	case **time.Time:
		if *t != nil {
			return (*t).Format(time.RFC3339Nano)
		}
	}
	return ""
}

// Type implements pflag.Value.
func (v timeValue[T]) Type() string { return "time" }

// Set implements pflag.Value. [RejectEmpty] rejects the empty value.
func (v timeValue[T]) Set(text string) error {
	if text == "" {
		return nil
	}
	at, err := v.parse(text)
	if err != nil {
		return err
	}
	switch t := any(v.t).(type) {
	case *time.Time:
		*t = at
	case **time.Time:
		*t = &at
	}
	return nil
}

func (v timeValue[T]) parse(text string) (time.Time, error) {
	description := ValueError("a time such as 2026-01-31T12:00:00Z")
	if v.relative {
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
func Time[T time.Time | *time.Time](t *T) pflag.Value { return timeValue[T]{t, false} }

// TimeOrSpan is like [Time] but also accepts a duration from now, such as +90m.
func TimeOrSpan(t **time.Time) pflag.Value { return timeValue[*time.Time]{t, true} }

// choiceValue is the value of a flag for one of several words.
type choiceValue[T ~string] struct {
	value *T
	words []T
}

// String implements pflag.Value.
func (v choiceValue[T]) String() string { return string(*v.value) }

// Type implements pflag.Value.
func (v choiceValue[T]) Type() string { return "string" }

// Set implements pflag.Value. [RejectEmpty] rejects the empty value.
func (v choiceValue[T]) Set(text string) error {
	if text != "" && !slices.Contains(v.words, T(text)) {
		return ValueError("one of " + Join(v.words))
	}
	*v.value = T(text)
	return nil
}

func (v choiceValue[T]) choices() []string { return Strings(v.words) }

// Choice returns a [pflag.Value] that accepts one of words. [ConfigureRoot] enables shell
// completion of the words.
func Choice[T ~string](value *T, words []T) pflag.Value { return choiceValue[T]{value, words} }

// choicesValue is the value of a flag for any of several words.
type choicesValue struct {
	values *[]string
	words  []string
}

// String implements pflag.Value.
func (v choicesValue) String() string { return "[" + strings.Join(*v.values, ",") + "]" }

// Type implements pflag.Value.
func (v choicesValue) Type() string { return "strings" }

// Set implements pflag.Value. The words are separated by commas.
func (v choicesValue) Set(text string) error {
	for word := range strings.SplitSeq(text, ",") {
		one := choiceValue[string]{new(string), v.words}
		if err := one.Set(word); err != nil {
			return err
		}
		*v.values = append(*v.values, word)
	}
	return nil
}

func (v choicesValue) choices() []string { return v.words }

// Choices returns a [pflag.Value] that accepts any of words, separated by commas. The flag can be
// repeated.
func Choices[T ~string](values *[]string, words []T) pflag.Value {
	return choicesValue{values, Strings(words)}
}

// optionalValue is the value of a flag that is true, false or unset.
type optionalValue struct{ value **bool }

// String implements pflag.Value.
func (v optionalValue) String() string {
	if *v.value == nil {
		return ""
	}
	return strconv.FormatBool(**v.value)
}

// Type implements pflag.Value.
func (v optionalValue) Type() string { return "bool" }

// Set implements pflag.Value.
func (v optionalValue) Set(text string) error {
	is, err := strconv.ParseBool(text)
	*v.value = &is
	return err
}

// Optional adds a flag that is true, false or unset.
func Optional(c *cobra.Command, value **bool, name, usage string) {
	c.Flags().Var(optionalValue{value}, name, usage)
	c.Flags().Lookup(name).NoOptDefVal = "true"
}

// completeFlags enables shell completion of flag values.
func completeFlags(c *cobra.Command) {
	each := func(f *pflag.Flag) {
		if v, ok := f.Value.(interface{ choices() []string }); ok {
			complete := cobra.FixedCompletions(v.choices(), cobra.ShellCompDirectiveNoFileComp)
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
